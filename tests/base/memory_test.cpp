#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace isobath {
namespace {

TEST(AnonymousBytes, GrowWithWhatIsTouchedAndFallWithWhatIsGivenBack) {
  const auto before = anonymous_bytes();
  if (!before) GTEST_SKIP() << "the system does not tell";
  constexpr size_t kBytes = size_t(64) << 20, kTouched = kBytes / 2;
  void* at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  constexpr double kSlack = 3e6;
  EXPECT_NEAR(double(*anonymous_bytes() - *before), 0, kSlack);
  std::memset(at, 1, kTouched);
  EXPECT_NEAR(double(*anonymous_bytes() - *before), double(kTouched), kSlack);
  ::munmap(at, kBytes);
  EXPECT_NEAR(double(*anonymous_bytes() - *before), 0, kSlack);
}

}  // namespace
}  // namespace isobath
