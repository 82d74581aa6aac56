// A folder of checkpoints: step-00000100/, step-00000200/, ..., and `latest`, a link to the newest whole one.
//
// A checkpoint is written under a hidden name (.step-00000100.part), flushed, closed with the marker file `complete`,
// renamed, and only then named by `latest`: whatever kills the program at whatever moment, every step-* folder with the
// marker is whole, and `latest` names one of them. Removal goes the other way: hidden first, then deleted.
// One run writes to a root at a time; any number may read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace isobath {

struct SavedCheckpoint {
  int64_t step;
  fs::path folder;
};

// Calls write(folder) to fill a new checkpoint, makes it appear whole, then removes all but the newest `keep` >= 1.
// Throws Error{kWork} and leaves the older ones alone when the disk is full or the folder cannot be written; what
// write() throws passes through. Returns the folder of the new checkpoint.
// Where only `latest` cannot be moved, it throws too, and the checkpoint stays.
// An older checkpoint of the same step is replaced. Checkpoints of later steps (a run that was taken up again from an
// earlier one left them) are neither counted nor removed. Old ones that cannot be removed stay.
fs::path save_checkpoint(const fs::path& root, int64_t step, int64_t keep,
                         const std::function<void(const fs::path& folder)>& write);

// Whole checkpoints under root, oldest first; parts of unfinished ones are ignored. None when there is no root.
std::vector<SavedCheckpoint> list_checkpoints(const fs::path& root);

// The one that `latest` names; where the link is missing or names none that is whole, the newest of the list.
std::optional<SavedCheckpoint> latest_checkpoint(const fs::path& root);

// Whether the folder is one of the whole checkpoints that the run in its parent folder lists, and not a copy elsewhere.
bool belongs_to_run(const fs::path& checkpoint);

// Removes what a killed writer left. Call when a run starts.
void remove_unfinished(const fs::path& root);

// A user may name a run folder, a checkpoint folder, or a folder of another program: the folder that holds config.json
// (the latest whole checkpoint of a run folder comes first), or config.json itself.
// Throws Error that says what was looked for when there is none.
fs::path find_model_folder(const fs::path& path);

// Where find_model_folder(path) is not what `latest` of a run folder names: which checkpoint was passed over, why, and
// which is used, for a warning. Else empty.
std::string passed_over(const fs::path& path);

}  // namespace isobath
