// Other people's files: tests read them from the folder named by ISOBATH_TEST_DATA and say so when they are skipped.
//   ISOBATH_NEEDS_DATA(path, "models/stories260K-hf");     // path is a std::filesystem::path, or the test is skipped
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace isobath::testing {

inline std::filesystem::path test_data() {
  const char* folder = std::getenv("ISOBATH_TEST_DATA");
  return folder == nullptr ? std::filesystem::path() : std::filesystem::path(folder);
}

}  // namespace isobath::testing

#define ISOBATH_NEEDS_DATA(path, name)                                                              \
  const std::filesystem::path path = isobath::testing::test_data() / (name);                        \
  if (isobath::testing::test_data().empty()) GTEST_SKIP() << "ISOBATH_TEST_DATA is not set: needs " << (name)
