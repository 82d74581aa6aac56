// Many texts at once inside a program of one's own:   isobath_many MODEL < prompts.txt
// Each line of the input is a prompt. One engine writes all of them together, in passes that every text shares; each
// answer is printed when it is whole, whichever ends first.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "generate/engine.h"
#include "generate/load.h"

int main(int argc, char** argv) try {
  using namespace isobath;
  require(argc == 2, "expected one argument, the model's folder");
  const LoadedModel loaded = load_model(argv[1]);
  // 64 MB of keys and values for all: if that is not enough for 16 texts at once, fewer are written together.
  Engine engine(*loaded.model, loaded.tokenizer, {.sequences = 16, .kv = Storage::kBf16, .kv_bytes = 64'000'000});
  const auto answer = [](const std::string& prompt) {
    return [prompt](const Result& result) { std::printf("%s ...%s\n\n", prompt.c_str(), result.text.c_str()); };
  };
  for (std::string line; std::getline(std::cin, line);) {
    Request request;
    request.prompt = prompt_tokens(loaded.tokenizer, line);
    request.max_tokens = 64;
    request.stop = {"\n\n"};
    request.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = 7};
    while (!engine.submit(request, {.on_finish = answer(line)})) engine.step();  // the queue is full: work first
  }
  engine.run();
  const Statistics& s = engine.statistics();
  std::fprintf(stderr, "%lld texts, %lld tokens in %lld passes, %lld prompt tokens shared\n",
               static_cast<long long>(s.finished), static_cast<long long>(s.drawn_tokens),
               static_cast<long long>(s.passes), static_cast<long long>(s.shared_tokens));
} catch (const isobath::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return int(error.fault());
}
