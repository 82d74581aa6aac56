// Decoded tokens per second, B sequences together: random models, dense and routed at capacity 1/8, and with
// ISOBATH_TEST_DATA the published stories260K. Greedy, from one token to a full context of 256.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "generate/generate.h"
#include "generate/load.h"

namespace isobath {
namespace {

void decode(benchmark::State& state, Model& model, const Tokenizer& tokenizer) {
  const int64_t B = state.range(0);
  Generator generator(model, tokenizer, {.sequences = B});
  const std::vector<Request> requests(
      size_t(B), Request{.prompt = {1}, .max_tokens = 255, .stop_at_eos = false, .sampling = {.temperature = 0}});
  int64_t tokens = 0;
  double seconds = 0, share = 0;
  for (auto _ : state) {
    generator.begin(requests);
    generator.run();
    const Statistics s = generator.statistics();
    tokens += s.decode_tokens;
    seconds += s.decode_seconds;
    share = s.share_run(s.layer.size() > 1 ? 1 : 0);
  }
  state.counters["tokens/s"] = double(tokens) / seconds;
  state.counters["share"] = share;
}

ModelConfig config_of(int64_t D, bool routed) {
  ModelConfig c;
  c.vocab_size = 257;
  c.hidden_size = D;
  c.num_hidden_layers = 8;
  c.num_attention_heads = D / 64;
  if (routed) c.routing.topology = Topology::kJoint;
  c.routing.router = Router::kRandom;  // runs its capacity from the start, without training
  c.routing.causal = Causal::kNone;
  resolve(c, 256);
  return c;
}

void random_model(benchmark::State& state, int64_t D, bool routed) {
  Model model(config_of(D, routed));
  initialize(model.weights, 1);
  decode(state, model, Tokenizer::bytes());
}

void stories(benchmark::State& state) {
  const char* data = std::getenv("ISOBATH_TEST_DATA");
  if (data == nullptr) return state.SkipWithError("ISOBATH_TEST_DATA is not set");
  const LoadedModel loaded = load_model(std::string(data) + "/models/stories260K-hf");
  decode(state, *loaded.model, loaded.tokenizer);
}

BENCHMARK(stories)->Arg(1)->Arg(8)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(random_model, dense_512, 512, false)->Arg(1)->Arg(8)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(random_model, routed_512, 512, true)->Arg(1)->Arg(8)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace isobath
