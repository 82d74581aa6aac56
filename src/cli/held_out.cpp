#include "cli/held_out.h"

#include <cmath>

#include "base/error.h"
#include "cli/flags.h"
#include "train/metrics.h"
#include "train/trainer.h"

namespace isobath::cli {
namespace {

// What counts as a document's, and how many a window holds: as the run was trained, where state.json tells.
LoaderOptions windows_of(const LoadedModel& loaded, const HeldOutFlags& a) {
  const ModelConfig& config = loaded.model->config();
  RunConfig run;
  run.model.routing = config.routing;
  if (fs::exists(loaded.folder / "state.json")) {
    try {
      run = stored_options(loaded.folder);
    } catch (const Error& error) {
      warn(fmt::format("{}; --max-documents is {}", error.what(), a.max_documents.value_or(0)));
    }
  }
  LoaderOptions windows{.T = a.context > 0 ? a.context : std::min<int64_t>(config.max_position_embeddings, 1024),
                        .B = a.batch,
                        .capacity_scope = run.model.routing.capacity_scope,
                        .attention_scope = run.model.routing.attention_scope,
                        .max_documents = a.max_documents.value_or(run.data.max_documents)};
  require(a.max_documents.value_or(0) == 0 || windows.capacity_scope == Scope::kDocument ||
              windows.attention_scope == Scope::kDocument,
          "--max-documents is for models with document scopes, and both scopes of {} are the sequence; leave it out",
          loaded.folder.string());
  require(windows.T <= config.max_position_embeddings, "--context {} is longer than the model's {}", windows.T,
          config.max_position_embeddings);
  return windows;
}

bool routes(const ModelConfig& config) { return config.routed_blocks() > 0 || config.experts_differ(); }

}  // namespace

CLI::Option* HeldOutFlags::add_path(CLI::App& command, const std::string& more) {
  return command.add_option("--path", path, "text: .txt, .jsonl, token shards, or a folder of these" + more);
}

void HeldOutFlags::add_windows(CLI::App& command) {
  command
      .add_option("--split", split, "which part of the text: the one that training holds out, the rest, or all of it")
      ->check(CLI::IsMember({"valid", "train", "all"}))
      ->capture_default_str();
  command.add_option("--context", context, "tokens per window; 0: the model's, at most 1024")
      ->check(not_negative)
      ->capture_default_str();
  command.add_option("--batch", batch, "windows at a time; changes speed and memory, never the result")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command.add_option("--windows", windows, "only so many windows, spread evenly over the text; 0: all")
      ->check(not_negative)
      ->capture_default_str();
  command
      .add_option("--max-documents", max_documents,
                  "per window, with document scopes; 0: max(1, T/64); without: as in training")
      ->check(not_negative);
}

std::vector<Way> ways_of(const ModelConfig& config, const std::string& by, const std::string& model) {
  if (!routes(config)) return {{"dense", SelectBy::kTopK}};
  require(by != "causal" || config.has_causal_rule(), "{} has no causal rule: {}; or evaluate it --by topk", model,
          config.why_no_causal_rule());
  std::vector<Way> ways;
  if (by != "causal") ways.push_back({"top_k", SelectBy::kTopK});
  if (by != "topk" && config.has_causal_rule()) ways.push_back({"causal", SelectBy::kCausal});
  return ways;
}

// A validation text of its own is taken whole.
HeldOut::HeldOut(const LoadedModel& loaded, const HeldOutFlags& flags)
    : flags_(flags),
      corpus_(Corpus::load(flags.path, loaded.tokenizer, flags.split == "all" ? flags.path : "")),
      text_(flags.split == "train" ? corpus_.train : corpus_.valid),
      evaluator_(loaded.model->config(), text_, windows_of(loaded, flags)) {}

Evaluation HeldOut::run(Model& model, const Selection& how) {
  if (prepared_ != &model) model.prepare(evaluator_.rows());
  prepared_ = &model;
  Progress progress("window");
  Evaluation result = evaluator_.run(
      model, how, flags_.windows, [&](int64_t done, int64_t of) { progress.update(done, of, ""); }, interrupted);
  progress.clear();
  return result;
}

double HeldOut::bytes_per_token() const {
  return text_.text_bytes() > 0 ? double(text_.text_bytes()) / double(text_.size()) : 0;
}

std::string loss_text(const char* name, const Evaluation& e, double bytes_per_token) {
  std::string text = fmt::format("{:<12} loss {:.4f} nats/token, perplexity {:.3f}", name, e.loss, std::exp(e.loss));
  if (bytes_per_token > 0) text += fmt::format(", {:.4f} bits/byte", e.loss / std::log(2.0) / bytes_per_token);
  return text + fmt::format("  ({} tokens)\n", e.targets);
}

nlohmann::json loss_json(const Evaluation& e, double bytes_per_token) {
  nlohmann::json json = to_json(e);
  json["perplexity"] = std::exp(e.loss);
  if (bytes_per_token > 0) json["bits_per_byte"] = e.loss / std::log(2.0) / bytes_per_token;
  return json;
}

}  // namespace isobath::cli
