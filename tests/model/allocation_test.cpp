// Nothing allocates inside a step after the first: this program counts calls of operator new.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

#include "base/work.h"
#include "support/tiny_model.h"

namespace {

std::atomic<bool> watching{false};
std::atomic<int64_t> allocations{0};

// Libraries keep small books of their own; ours are what counts. From the caller of operator new outwards, the first
// frame that is neither in the C++ nor in the C library tells whose call it was.
bool called_by_us(const void* caller) {
  void* frames[24];
  const int depth = ::backtrace(frames, 24);
  for (int i = int(std::find(frames, frames + depth, caller) - frames); i < depth; i++) {
    Dl_info info;
    if (::dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    if (std::strstr(info.dli_fname, "libdnnl") != nullptr || std::strstr(info.dli_fname, "libgomp") != nullptr)
      return false;
    if (std::strstr(info.dli_fname, "libstdc++") == nullptr && std::strstr(info.dli_fname, "libc.so") == nullptr)
      return true;
  }
  return true;
}

void* allocate(size_t bytes, size_t alignment, const void* caller) {
  if (watching.load(std::memory_order_relaxed) && called_by_us(caller)) allocations++;
  void* at = alignment == 0 ? std::malloc(bytes)
                            : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}

// Not inlined: the compiler would see free() meet operator new, and warn.
[[gnu::noinline]] void release(void* at) noexcept { std::free(at); }

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes, 0, __builtin_return_address(0)); }
void* operator new[](size_t bytes) { return allocate(bytes, 0, __builtin_return_address(0)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, size_t(alignment), __builtin_return_address(0));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, size_t(alignment), __builtin_return_address(0));
}
void operator delete(void* at) noexcept { release(at); }
void operator delete[](void* at) noexcept { release(at); }
void operator delete(void* at, size_t) noexcept { release(at); }
void operator delete[](void* at, size_t) noexcept { release(at); }
void operator delete(void* at, std::align_val_t) noexcept { release(at); }
void operator delete[](void* at, std::align_val_t) noexcept { release(at); }
void operator delete(void* at, size_t, std::align_val_t) noexcept { release(at); }
void operator delete[](void* at, size_t, std::align_val_t) noexcept { release(at); }

namespace isobath {
namespace {

using namespace isobath::testing;

int64_t allocations_in(const std::function<void()>& work) {
  allocations = 0;
  watching = true;
  work();
  watching = false;
  return allocations;
}

TEST(Allocations, AreSeen) {
  EXPECT_GT(allocations_in([] {
              std::vector<int> seen(100, 1);
              EXPECT_EQ(seen[7], 1);
            }),
            0);
  EXPECT_EQ(allocations_in([] {}), 0);
}

class Step : public ::testing::TestWithParam<std::pair<const char*, ModelConfig>> {};

std::vector<std::pair<const char*, ModelConfig>> configs() {
  ModelConfig predictor = tiny_routed(), random = tiny_routed(), documents = tiny_routed();
  predictor.routing.causal = Causal::kPredictor;
  random.routing.router = Router::kRandom;
  random.routing.causal = Causal::kNone;
  documents.routing.capacity_scope = documents.routing.attention_scope = Scope::kDocument;
  ModelConfig experts = tiny_config(), expert_choice = tiny_routed();
  experts.experts = {.experts = 3, .capacity_factor = 1.1};
  expert_choice.experts = {.experts = 3, .choice = Choice::kExpert};
  return {{"Dense", tiny_config()}, {"Bce", tiny_routed()}, {"Predictor", predictor},       {"Random", random},
          {"Documents", documents}, {"Experts", experts},   {"ExpertChoice", expert_choice}};
}
INSTANTIATE_TEST_SUITE_P(Kinds, Step, ::testing::ValuesIn(configs()),
                         [](const auto& info) { return std::string(info.param.first); });

// Ragged and partial batches too: their list sizes were not named when the products were planned.
TEST_P(Step, AllocatesNothingAfterTheFirst) {
  ModelConfig config = GetParam().second;
  config.max_position_embeddings = 100;
  const std::vector<Sequence> whole{random_sequence(1, {70, 30}, config.vocab_size),
                                    random_sequence(2, {50, 50}, config.vocab_size)};
  const std::vector<Sequence> ragged{random_sequence(3, {61}, config.vocab_size),
                                     random_sequence(4, {13, 2}, config.vocab_size)};
  const MemoryOptions saving{.recompute = Recompute::kBlocks, .storage = Storage::kBf16, .packing = Packing::kProduct};
  for (const MemoryOptions& memory : {MemoryOptions(), saving}) {
    TinyModel model(config, limits_for(whole), Purpose::kTrain, 3, memory);
    const TinyBatch first(whole, model.config), second(ragged, model.config);
    model.step(first, {.step = 0});
    EXPECT_EQ(allocations_in([&] { model.step(first, {.step = 1}); }), 0);
    EXPECT_EQ(allocations_in([&] { model.step(second, {.step = 2}); }), 0);
    EXPECT_EQ(allocations_in([&] { model.products.pack(model.weights.weights()); }), 0);
    EXPECT_EQ(allocations_in([&] {
                const Profile profile;
                model.step(first, {.step = 3});
              }),
              0);
  }
}

TEST_P(Step, ForwardAllocatesNothingAfterTheFirst) {
  ModelConfig config = GetParam().second;
  TinyModel model(config, {.sequences = 2, .T = 40, .max_documents = 2}, Purpose::kForward);
  const TinyBatch batch({random_sequence(1, {30, 10}, config.vocab_size), random_sequence(2, {17}, config.vocab_size)},
                        model.config);
  const Selection how{.by = config.has_causal_rule() ? SelectBy::kCausal : SelectBy::kTopK};
  model.forward(batch, how);
  EXPECT_EQ(allocations_in([&] { model.forward(batch, how); }), 0);
}

}  // namespace
}  // namespace isobath
