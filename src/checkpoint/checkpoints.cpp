#include "checkpoint/checkpoints.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>

#include "base/error.h"

namespace isobath {
namespace {

constexpr const char* kMarker = "complete";
constexpr const char* kLatest = "latest";
constexpr const char* kLatestPart = ".latest.part";

std::string step_name(int64_t step) { return fmt::format("step-{:08}", step); }

// Not whole yet, or no longer wanted.
fs::path hidden_part(const fs::path& root, int64_t step) { return root / fmt::format(".{}.part", step_name(step)); }
// Whole, set aside for the moment in which another of the same step takes its name.
fs::path hidden_old(const fs::path& root, int64_t step) { return root / fmt::format(".{}.old", step_name(step)); }

// The step of a name that step_name() would give, and of no other.
std::optional<int64_t> step_of(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  int64_t step = -1;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (step < 0 || name != step_name(step)) return std::nullopt;
  return step;
}

// The same for the names of hidden_part() and hidden_old().
std::optional<int64_t> hidden_step(const fs::path& name) {
  const std::string stem = name.stem().string();
  const bool ours = stem.starts_with('.') && (name.extension() == ".part" || name.extension() == ".old");
  return ours ? step_of(std::string_view(stem).substr(1)) : std::nullopt;
}

bool is_whole(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kMarker, ignored);
}

// Runs f(), and turns the file library's exceptions into ours.
template <class F>
auto naming(const char* doing, const fs::path& path, F f) {
  try {
    return f();
  } catch (const fs::filesystem_error& e) {
    fail_work("cannot {} {}: {}", doing, path.string(), e.code().message());
  }
}

void sync_tree(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_symlink()) continue;
    if (entry.is_directory()) sync_tree(entry.path());
    if (entry.is_regular_file()) sync_file(entry.path());
  }
  sync_folder(folder);
}

// part takes the name of folder. Where the file system can, the two change places in one move; else there is a moment
// in which the step is missing, and remove_unfinished() mends what a kill then leaves.
void take_name(const fs::path& part, const fs::path& folder, const fs::path& old) {
  if (!fs::exists(folder)) return fs::rename(part, folder);
#ifdef RENAME_EXCHANGE
  if (::renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) return;
#endif
  fs::remove_all(old);
  fs::rename(folder, old);
  std::error_code error;
  fs::rename(part, folder, error);
  fs::rename(old, error ? folder : part);
  if (error) throw fs::filesystem_error("rename", part, folder, error);
}

void point_latest_to(const fs::path& root, const std::string& name) {
  const fs::path part = root / kLatestPart;
  fs::remove(part);
  fs::create_symlink(name, part);  // relative: the root may be moved
  fs::rename(part, root / kLatest);
  sync_folder(root);
}

void remove_older(const fs::path& root, int64_t step, int64_t keep) {
  std::vector<SavedCheckpoint> all = list_checkpoints(root);
  std::erase_if(all, [&](const SavedCheckpoint& c) { return c.step > step; });
  all.resize(size_t(std::max<int64_t>(0, int64_t(all.size()) - keep)));
  if (all.empty()) return;
  std::error_code ignored;
  for (const SavedCheckpoint& c : all) {
    fs::remove_all(hidden_part(root, c.step), ignored);
    fs::rename(c.folder, hidden_part(root, c.step), ignored);
  }
  sync_folder(root);  // no power cut may find a visible folder half deleted
  for (const SavedCheckpoint& c : all) fs::remove_all(hidden_part(root, c.step), ignored);
}

struct Choice {
  std::optional<SavedCheckpoint> used;
  std::string why;  // it is not the one that `latest` names; empty where it is, or where there is no run
};

Choice choose(const fs::path& root) {
  std::error_code error;
  const fs::path named = fs::read_symlink(root / kLatest, error);
  const bool linked = !error;
  const std::optional<int64_t> step = linked ? step_of(named.string()) : std::nullopt;
  if (step && is_whole(root / named)) return {SavedCheckpoint{*step, root / named}, ""};
  const std::vector<SavedCheckpoint> all = list_checkpoints(root);
  Choice choice;
  if (!all.empty()) choice.used = all.back();
  if (!linked)
    choice.why = all.empty() ? "" : fmt::format("the link {} is missing", kLatest);
  else if (!step)
    choice.why = fmt::format("the link {} leads to {}, which is no checkpoint of the run", kLatest, named.string());
  else if (!fs::exists(root / named, error))
    choice.why = fmt::format("{}, which {} names, is missing", named.string(), kLatest);
  else
    choice.why = fmt::format("{}, which {} names, is not whole: it has no file '{}'", named.string(), kLatest, kMarker);
  return choice;
}

// A trailing slash, which completion types, names the same folder.
fs::path without_slash(const fs::path& path) {
  return path.has_filename() || path == path.root_path() ? path : path.parent_path();
}

}  // namespace

fs::path save_checkpoint(const fs::path& root, int64_t step, int64_t keep,
                         const std::function<void(const fs::path& folder)>& write) {
  require(step >= 0 && keep >= 1, "save_checkpoint: step {} and keep {}, expected at least 0 and 1", step, keep);
  const fs::path part = hidden_part(root, step), folder = root / step_name(step);
  try {
    naming("create", part, [&] {
      if (fs::create_directories(root)) sync_folder(parent_folder(root));
      fs::remove_all(part);
      fs::create_directory(part);
    });
    write(part);
    naming("write", folder, [&] {
      sync_tree(part);
      replace_file(part / kMarker, fmt::format("step {}\n", step));
      take_name(part, folder, hidden_old(root, step));
      sync_folder(root);
    });
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(part, ignored);
    throw;
  }
  naming("write", root / kLatest, [&] {
    fs::remove_all(part);  // the older one of the same step, if there was one
    point_latest_to(root, step_name(step));
  });
  remove_older(root, step, keep);
  return folder;
}

std::vector<SavedCheckpoint> list_checkpoints(const fs::path& root) {
  std::vector<SavedCheckpoint> found;
  std::error_code error;
  if (!fs::exists(root, error)) return found;
  fs::directory_iterator entries(root, error);
  require(!error, "cannot read {}: {}", root.string(), error.message());
  for (const auto& entry : entries) {
    const std::optional<int64_t> step = step_of(entry.path().filename().string());
    if (step && is_whole(entry.path())) found.push_back({*step, entry.path()});
  }
  std::sort(found.begin(), found.end(),
            [](const SavedCheckpoint& a, const SavedCheckpoint& b) { return a.step < b.step; });
  return found;
}

std::optional<SavedCheckpoint> latest_checkpoint(const fs::path& root) { return choose(root).used; }

std::string passed_over(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return "";
  const auto [used, why] = choose(path);
  if (!used || why.empty()) return "";
  return fmt::format("{}: {}; {} is used instead", without_slash(path).string(), why, used->folder.filename().string());
}

bool belongs_to_run(const fs::path& checkpoint) {
  std::error_code error;
  const fs::path folder = fs::canonical(checkpoint, error);
  return !error && step_of(folder.filename().string()) && is_whole(folder) &&
         fs::is_symlink(folder.parent_path() / kLatest, error);
}

void remove_unfinished(const fs::path& root) {
  std::error_code error;
  if (!fs::exists(root, error)) return;
  naming("clean", root, [&] {
    std::vector<fs::path> names;  // the folder is not changed while it is listed
    for (const auto& entry : fs::directory_iterator(root)) names.push_back(entry.path().filename());
    for (const fs::path& name : names) {
      const std::optional<int64_t> step = hidden_step(name);
      const bool set_aside = step && name == hidden_old(root, *step).filename();
      if (set_aside && !fs::exists(root / step_name(*step))) {
        fs::rename(root / name, root / step_name(*step));
      } else if (step || name == kLatestPart) {
        fs::remove_all(root / name);
      }
    }
    sync_folder(root);
  });
}

fs::path find_model_folder(const fs::path& given) {
  const fs::path path = without_slash(given);
  constexpr const char* kConfig = "config.json";
  std::error_code ignored;
  const std::string where = path.string();
  require(fs::exists(path, ignored), "{}: no such file or folder; expected a folder that holds {}", where, kConfig);
  if (!fs::is_directory(path, ignored)) {
    require(path.filename() == kConfig, "{}: not a model; expected a folder that holds {}, or {} itself", where,
            kConfig, kConfig);
    return parent_folder(path);
  }
  const auto [latest, why] = choose(path);
  if (latest) {
    require(fs::exists(latest->folder / kConfig, ignored), "{}: the latest checkpoint {} has no {}", where,
            latest->folder.filename().string(), kConfig);
    return latest->folder;
  }
  require(fs::exists(path / kConfig, ignored), "{}: no model found{}; looked for {}/, whole checkpoints step-*/ and {}",
          where, why.empty() ? "" : " (" + why + ")", kLatest, kConfig);
  return path;
}

}  // namespace isobath
