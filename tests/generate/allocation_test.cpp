// After begin() a decode step allocates nothing but what the caches grow by. Every operator new of the program is
// counted, except calls from inside the GEMM library.
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

int64_t reserved(const Generator& g, int64_t sections) {
  int64_t bytes = 0;
  for (int64_t l = 0; l < sections; l++) bytes += g.cache().reserved_bytes(l);
  return bytes;
}

TEST(Allocation, DecodeStepAllocatesOnlyWhenACacheGrows) {
  for (const Rule& rule : kRules) {
    const auto model = tiny_model(tiny_config(rule));
    Generator g(*model, Tokenizer::bytes(), {.sequences = 3});
    std::vector<Request> requests;
    for (uint64_t b = 0; b < 3; b++)
      requests.push_back({.prompt = random_prompt(7 + int64_t(b), b + 1),
                          .max_tokens = 60,
                          .stop = {"not in the text"},
                          .stop_at_eos = false,
                          .sampling = {.top_k = 200, .top_p = 0.95, .min_p = 0.001, .seed = b}});
    g.begin(requests);
    ASSERT_TRUE(g.step());
    int64_t quiet = 0;
    for (bool more = true; more;) {
      const int64_t before = reserved(g, model->config().sections());
      allocations = 0;
      counting = true;
      more = g.step();
      counting = false;
      if (reserved(g, model->config().sections()) != before) {
        EXPECT_GT(allocations, 0) << "the count sees nothing";
        continue;
      }
      EXPECT_EQ(allocations, 0) << rule.name << ", after " << g.result(0).drawn() << " tokens";
      quiet++;
    }
    EXPECT_GT(quiet, 30);
  }
}

}  // namespace
}  // namespace isobath
