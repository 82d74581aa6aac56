// Where a command leaves a model that it made.
#pragma once

#include <cstdint>

#include "base/file.h"

namespace isobath::cli {

// A folder that appears under its name when it is whole. Destroyed before that: removed.
class NewFolder {
 public:
  // Makes the folders above it. Throws Error if there is something of that name already, other than an empty folder: a
  // model beside a run's checkpoints would be passed over for these.
  explicit NewFolder(const fs::path& path);
  NewFolder(const NewFolder&) = delete;
  ~NewFolder();
  void require_room(int64_t bytes) const;
  // Where the files are written. What a killed process left there is removed.
  const fs::path& part();
  void appear();

 private:
  fs::path path_, part_;
};

}  // namespace isobath::cli
