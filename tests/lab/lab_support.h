// Two tiny twins, trained in a moment, and text for them.
#pragma once

#include <string>

#include "lab/twins.h"
#include "support/temp_dir.h"

namespace isobath::testing {

// Sentences from a small grammar: enough regularity that a model of some thousand weights learns.
inline std::string tiny_text(int sentences) {
  const char* who[] = {"The fox", "A heron", "My sister", "The <tide> & I"};
  const char* does[] = {" sees ", " follows ", " forgets "};
  const char* what[] = {"the river.\n", "a light.\n", "an old song.\n"};
  std::string text;
  for (int i = 0; i < sentences; i++) text += std::string(who[i * 7 % 4]) + does[i * 5 % 3] + what[(i * i + i / 3) % 3];
  return text;
}

struct TinyLab {
  TempDir folder;
  Tokenizer tokenizer = Tokenizer::bytes();
  Corpus corpus;
  TwinSetup setup;

  TinyLab() {
    const fs::path data = folder.write("text.txt", tiny_text(1200));
    corpus = Corpus::load(data, tokenizer);
    setup = twin_setup({.data = data.string(), .seconds = 1, .quick = true, .out = folder / "out"});
    for (RunConfig* config : {&setup.dense, &setup.mod}) {
      config->model.hidden_size = 16;
      config->model.num_hidden_layers = 2;
      config->model.num_attention_heads = 1;
      config->data.context = 32;
      config->data.batch = 4;
    }
  }

  Comparison compare(double flops) {
    Comparison c{.options = setup.options,
                 .train_tokens = corpus.train.size(),
                 .valid_tokens = corpus.valid.size(),
                 .peak = {100, 10, "test", 1, "none"},
                 .probe = {.flops = flops, .dense_flop_s = 1, .mod_flop_s = 1, .dense_seconds = 1, .mod_seconds = 1},
                 .baseline = count_baseline(setup, tokenizer, corpus),
                 .dense{},
                 .mod{}};
    c.dense = train_twin(setup.dense, flops, tokenizer, corpus, c.peak, {});
    c.mod = train_twin(setup.mod, flops, tokenizer, corpus, c.peak, {});
    return c;
  }
};

}  // namespace isobath::testing
