// The text that a model is judged on, cut into windows, and the ways in which it is read: what eval and quantize share.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "generate/load.h"
#include "text/corpus.h"
#include "train/evaluate.h"

namespace isobath::cli {

struct HeldOutFlags {
  std::string path, split = "valid";
  std::optional<int64_t> max_documents;
  int64_t context = 0, batch = 8, windows = 0;

  CLI::Option* add_path(CLI::App& command, const std::string& more = "");
  void add_windows(CLI::App& command);
};

// How rows are chosen: "dense", or "top_k" and, where the model has such a rule, "causal".
struct Way {
  const char* name;
  SelectBy by;
};
// `by` is both, topk or causal. Throws Error if the model has not what is asked for.
std::vector<Way> ways_of(const ModelConfig& config, const std::string& by, const std::string& model);

class HeldOut {
 public:
  // Throws Error if there is no such text, or windows are longer than the model's context.
  HeldOut(const LoadedModel& loaded, const HeldOutFlags& flags);
  // Prepares the model, of the same sizes, and shows progress. Not complete if the user has had enough.
  Evaluation run(Model& model, const Selection& how);
  double bytes_per_token() const;  // 0 where the text does not tell

 private:
  const HeldOutFlags flags_;
  Corpus corpus_;
  TokenStream text_;
  Evaluator evaluator_;
  const Model* prepared_ = nullptr;
};

// loss, perplexity, and bits per byte where they are known.
std::string loss_text(const char* name, const Evaluation& e, double bytes_per_token);
nlohmann::json loss_json(const Evaluation& e, double bytes_per_token);

}  // namespace isobath::cli
