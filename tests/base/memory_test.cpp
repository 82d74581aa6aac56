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

TEST(GiveBack, WholePagesAreZeroAndTheRestStays) {
  constexpr int64_t kPage = 4096, kBytes = 64 * kPage;
  auto* at = static_cast<unsigned char*>(
      ::mmap(nullptr, size_t(kBytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(at, MAP_FAILED);
  std::memset(at, 7, size_t(kBytes));
  give_back(at + 10, kBytes - 20);
  EXPECT_EQ(at[kPage - 1], 7);
  EXPECT_EQ(at[kBytes - kPage], 7);
  for (int64_t i = 16 * kPage; i < 48 * kPage; i++) ASSERT_EQ(at[i], 0);
  give_back(at + 1, 20);  // no whole page
  EXPECT_EQ(at[5], 7);
  at[20 * kPage] = 3;
  EXPECT_EQ(at[20 * kPage], 3);
  ::munmap(at, size_t(kBytes));
}

}  // namespace
}  // namespace isobath
