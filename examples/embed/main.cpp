// Text from a model inside a program of one's own:   isobath_embed [MODEL [PROMPT]]
// MODEL is a run, a checkpoint or a Hugging Face Llama folder; without one a small untrained model babbles.
#include <cstdio>
#include <string>

#include "base/error.h"
#include "generate/engine.h"
#include "generate/load.h"

namespace {

// An untrained byte model with every other block routed.
isobath::LoadedModel untrained() {
  isobath::LoadedModel loaded{"", isobath::Tokenizer::bytes(), nullptr};
  isobath::ModelConfig config;
  config.vocab_size = loaded.tokenizer.vocab_size();
  config.bos_token_id = loaded.tokenizer.bos();
  config.routing.topology = isobath::Topology::kJoint;
  isobath::resolve(config, 128);
  loaded.model = std::make_unique<isobath::Model>(config);
  isobath::initialize(loaded.model->weights, 1);
  return loaded;
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace isobath;
  const LoadedModel loaded = argc > 1 ? load_model(argv[1]) : untrained();
  const std::string prompt = argc > 2 ? argv[2] : "Once upon a time";
  Engine engine(*loaded.model, loaded.tokenizer, {});
  Request request;
  request.prompt = prompt_tokens(loaded.tokenizer, prompt);
  request.max_tokens = 32;
  request.sampling.temperature = 0;
  engine.submit(request,
                {.on_text = [](std::string_view piece) { std::fwrite(piece.data(), 1, piece.size(), stdout); }});
  engine.run();
  const Statistics& statistics = engine.statistics();
  std::printf("\nisobath %s: %lld tokens, %.0f tokens/s\n", ISOBATH_VERSION,
              static_cast<long long>(statistics.drawn_tokens), statistics.decode_tokens_per_second());
} catch (const isobath::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return int(error.fault());
}
