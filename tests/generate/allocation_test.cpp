// A decode step allocates nothing. Every operator new of the program is counted, except calls from inside the GEMM
// library.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "generate/tiny_model.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void* allocate(size_t bytes, void* caller) {
  if (counting) {
    counting = false;  // dladdr may allocate
    Dl_info info;
    const bool library =
        dladdr(caller, &info) != 0 && std::string_view(info.dli_fname).find("dnnl") != std::string_view::npos;
    if (!library) allocations++;
    counting = true;
  }
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined: the compiler would take malloc and free for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes) { return allocate(bytes, __builtin_return_address(0)); }
[[gnu::noinline]] void* operator new[](size_t bytes) { return allocate(bytes, __builtin_return_address(0)); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace isobath {
namespace {

using namespace testing;

void expect_no_allocations(const Rule& rule, int64_t speculate) {
  const auto model = tiny_model(tiny_config(rule, 300));
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 3, .speculate = speculate});
  for (uint64_t b = 0; b < 3; b++)
    engine.submit({.prompt = random_prompt(20 + int64_t(b), b + 1),
                   .max_tokens = 60 * (1 + speculate),
                   .stop = {"not in the text"},
                   .stop_at_eos = false,
                   .sampling = {.top_k = 200, .top_p = 0.95, .min_p = 0.001, .seed = b}});
  allocations = 0;
  counting = true;
  engine.step();
  counting = false;
  EXPECT_GT(allocations, 0) << "the count sees nothing";
  const int64_t pages = engine.pool().free_pages();
  for (int64_t step = 2; step < 60; step++) {
    allocations = 0;
    counting = true;
    engine.step();
    counting = false;
    EXPECT_EQ(allocations, 0) << rule.name << ", step " << step;
  }
  EXPECT_LT(engine.pool().free_pages(), pages) << "the steps took pages";
}

TEST(Allocation, DecodeStepAllocatesNothing) {
  for (const Rule& rule : kRules)
    for (const int64_t speculate : {0, 3}) expect_no_allocations(rule, speculate);
}

}  // namespace
}  // namespace isobath
