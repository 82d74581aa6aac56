// A folder of checkpoints: step-00000100/, step-00000200/, ..., and `latest`, a link to the newest whole one.
//
// A checkpoint is written under a hidden name, flushed, closed with a marker file, renamed, and only then named by
// `latest`: whatever kills the program at whatever moment, `latest` names a whole checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/file.h"

namespace isobath {

struct SavedCheckpoint {
  int64_t step;
  fs::path folder;
};

// Calls write(folder) to fill a new checkpoint, makes it appear whole, then removes all but the newest `keep`.
// Throws Error{kWork} and leaves the older ones alone when the disk is full or the folder cannot be written.
// Returns the folder of the new checkpoint. An older checkpoint of the same step is replaced.
fs::path save_checkpoint(const fs::path& root, int64_t step, int64_t keep,
                         const std::function<void(const fs::path& folder)>& write);

// Whole checkpoints under root, oldest first; parts of unfinished ones are ignored.
std::vector<SavedCheckpoint> list_checkpoints(const fs::path& root);
std::optional<SavedCheckpoint> latest_checkpoint(const fs::path& root);

// Removes what a killed writer left. Call when a run starts.
void remove_unfinished(const fs::path& root);

// A user may name a run folder, a checkpoint folder, or a folder of another program: the folder that holds config.json.
// Throws Error that says what was looked for when there is none.
fs::path find_model_folder(const fs::path& path);

}  // namespace isobath
