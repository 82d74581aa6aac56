// Checkpoints whose content follows from their step, so that a part of one is told from the whole.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "checkpoint/checkpoints.h"

namespace isobath::testing {

// Temporary folders in memory where the system has such a place: these tests flush thousands of times.
inline const bool kInMemory = fs::is_directory("/dev/shm") && ::setenv("TMPDIR", "/dev/shm", 1) == 0;

inline std::string content(int64_t step, int part) {
  return std::string(size_t(7000 + 100 * part), char('a' + (step + part) % 26));
}

inline fs::path save(const fs::path& root, int64_t step, int64_t keep) {
  return save_checkpoint(root, step, keep, [&](const fs::path& folder) {
    for (int part = 0; part < 2; part++) replace_file(folder / std::to_string(part), content(step, part));
    fs::create_directory(folder / "sub");
    replace_file(folder / "sub/file", content(step, 2));
  });
}

// Every checkpoint that can be seen is whole (a half one does not even have the name of one), and `latest`, where it
// exists, leads to one of them.
inline void check_whole(const fs::path& root) {
  bool latest_is_listed = !fs::is_symlink(root / "latest");
  for (const auto& [step, folder] : list_checkpoints(root)) {
    for (int part = 0; part < 2; part++) EXPECT_EQ(read_file(folder / std::to_string(part)), content(step, part));
    EXPECT_EQ(read_file(folder / "sub/file"), content(step, 2));
    latest_is_listed |= fs::is_symlink(root / "latest") && fs::canonical(root / "latest") == fs::canonical(folder);
  }
  EXPECT_TRUE(latest_is_listed);
  size_t visible = 0;
  if (fs::exists(root))
    for (const auto& entry : fs::directory_iterator(root))
      visible += entry.path().filename().string().starts_with("step-");
  EXPECT_EQ(visible, list_checkpoints(root).size());
  EXPECT_EQ(latest_checkpoint(root).has_value(), !list_checkpoints(root).empty());
}

}  // namespace isobath::testing
