#include "cli/new_folder.h"

#include "base/error.h"
#include "base/units.h"

namespace isobath::cli {

NewFolder::NewFolder(const fs::path& path) : path_(path) {
  if (path_.filename().empty()) path_ = path_.parent_path();  // "folder/"
  require(!path_.filename().empty() && path_.filename() != "." && path_.filename() != "..",
          "--out {} is not the name of a new folder", path.string());
  std::error_code error;
  require(!fs::exists(path_, error) || (fs::is_directory(path_, error) && fs::is_empty(path_, error)),
          "{} is there already; name another folder (--out)", path.string());
  fs::create_directories(parent_folder(path_), error);
  require(!error, "cannot make the folder {}: {}; name another one (--out)", path.string(), error.message());
  require_writable(parent_folder(path_));
  part_ = parent_folder(path_) / ("." + path_.filename().string() + ".part");
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  fs::remove_all(part_, ignored);
}

void NewFolder::require_room(int64_t bytes) const {
  std::error_code error;
  const fs::space_info space = fs::space(parent_folder(path_), error);
  require(error || space.available >= uintmax_t(bytes), "{}: the model takes {}, and {} are free; name another disk",
          path_.string(), bytes_text(double(bytes)), bytes_text(double(space.available)));
}

const fs::path& NewFolder::part() {
  std::error_code error;
  fs::remove_all(part_, error);
  fs::create_directory(part_, error);
  if (error) fail_work("cannot make the folder {}: {}", part_.string(), error.message());
  return part_;
}

void NewFolder::appear() {
  sync_folder(part_);
  std::error_code error;
  fs::rename(part_, path_, error);
  if (error) fail_work("cannot write {}: {}", path_.string(), error.message());
  sync_folder(parent_folder(path_));
}

}  // namespace isobath::cli
