// Memory of the library in a program of one's own: planned by name, allocated once, carved.
#include <cstdio>

#include "base/error.h"
#include "base/rng.h"
#include "tensor/arena.h"

int main() try {
  using namespace isobath;
  F32 x, bias;
  Plan plan;
  plan.add("x", x, {3, 4});
  plan.add("bias", bias, {4});
  const Arena arena(plan);

  const Rng rng(1, Stream::kInit);
  for (int64_t i = 0; i < x.numel(); i++) x[i] = rng.normal(uint64_t(i));
  for (const Plan::Entry& entry : plan.entries())
    std::printf("%s: %lld bytes\n", entry.name.c_str(), static_cast<long long>(entry.bytes));
  std::printf("isobath %s: %lld bytes in one allocation, x[0] = %.4f\n", ISOBATH_VERSION,
              static_cast<long long>(arena.bytes()), double(x[0]));
} catch (const isobath::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return int(error.fault());
}
