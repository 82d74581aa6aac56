// Other people's files: tests read them from the folder named by ISOBATH_TEST_DATA and say so when they are skipped.
//   ISOBATH_NEEDS_DATA(path, "models/stories260K-hf");     // path is a std::filesystem::path, or the test is skipped
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace isobath::testing {

// Where `name` lies, or empty without the folder. Prints one line per use: CI counts the tests that really ran.
inline std::filesystem::path test_data(const std::string& name) {
  const char* folder = std::getenv("ISOBATH_TEST_DATA");
  if (folder == nullptr || *folder == '\0') return {};
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (test != nullptr) std::printf("[   DATA   ] %s.%s %s\n", test->test_suite_name(), test->name(), name.c_str());
  return std::filesystem::path(folder) / name;
}

}  // namespace isobath::testing

#define ISOBATH_NEEDS_DATA(variable, name)                                  \
  const std::filesystem::path variable = isobath::testing::test_data(name); \
  if (variable.empty()) GTEST_SKIP() << "ISOBATH_TEST_DATA is not set: needs " << (name)
