// What GenerationBench measured, for people and for programs.
#include "base/units.h"
#include "cli/generation_bench.h"
#include "cli/table_text.h"

namespace isobath::cli {
namespace {

// Name and times of each model of the pair.
std::vector<std::pair<std::string, const GenerationTimes*>> timed(const GenerationPair& pair) {
  std::vector<std::pair<std::string, const GenerationTimes*>> all;
  const auto add = [&](const char* name, const GenerationTimes& t) {
    all.emplace_back(fmt::format("{}, batch {}", name, t.batch), &t);
  };
  add(pair.mod ? "dense" : "model", pair.dense);
  if (pair.mod) add("MoD", *pair.mod);
  if (pair.drafting) add("MoD drafting", *pair.drafting);
  return all;
}

std::vector<std::string> row(const std::string& name, const GenerationTimes& t, const GenerationReport& r) {
  return {name,
          with_letter(t.tokens_per_s()),
          fmt::format("{:.2f}", t.quick_ms()),
          fmt::format("{:.2f}", median(t.pass_ms)),
          spread(t.bound_shares, 1, 100) + "%",
          with_letter(t.prompt_tokens_per_s),
          fmt::format("{:.0f}", t.first_token_ms),
          fmt::format("{:.1f}%", 100 * t.routed_share),
          bytes_text(double(t.kv_held_bytes)),
          fmt::format("{:.1f}%", 100 * double(t.kv_held_bytes) / double(t.kv_dense_bytes))};
}

std::string drafting_line(const GenerationPair& pair, int64_t drafts) {
  const Speculation& s = pair.drafting->speculation;
  const double passes = pair.round_passes();
  return fmt::format(
      "batch {}, {} drafted: speed {:.3f} times that without; a round takes as long as {:.2f} passes and gives {:.2f} "
      "tokens ({:.2f} drafts stand, {:.1f}%); if all stood it were {:.3f} times\n",
      pair.mod->batch, drafts, pair.net_speed(), passes, pair.drafting->mean_tokens() / double(pair.mod->batch),
      s.mean_accepted(), 100 * s.accepted_share(), double(1 + drafts) / passes);
}

nlohmann::json times_json(const GenerationTimes& t, const GenerationReport& r, bool profile) {
  nlohmann::json json{{"tokens_per_s", t.tokens_per_s()},
                      {"quick_ms", t.quick_ms()},
                      {"pass_ms", t.pass_ms},
                      {"pass_bytes", t.pass_bytes},
                      {"bound_share", t.bound_share()},
                      {"bound_shares", t.bound_shares},
                      {"prompt_tokens_per_s", t.prompt_tokens_per_s},
                      {"first_token_ms", t.first_token_ms},
                      {"routed_share", t.routed_share},
                      {"kv_used_bytes", t.kv_used_bytes},
                      {"kv_held_bytes", t.kv_held_bytes},
                      {"kv_dense_bytes", t.kv_dense_bytes}};
  if (profile) json["profile"] = to_json(t.profile, r.peak);
  return json;
}

}  // namespace

std::string text_of(const GenerationReport& r, bool profile) {
  const ModelConfig& m = r.setup.model;
  std::string text =
      fmt::format("{}, {} threads, {}: {:.0f} GFLOP/s fp32, {:.1f} GB/s reading {}\n", r.peak.cpu, r.peak.threads,
                  r.peak.simd, r.peak.fma_gflop_s, r.peak.read_gb_s, bytes_text(double(r.read_bytes)));
  text += fmt::format(
      "width {}, {} blocks, vocabulary {}: {} weights in {} ({}, packed in {:.0f} ms); keys and values in {}\n"
      "prompts of {} tokens, then {} passes of each; speeds are those of the passes that others disturbed least, the "
      "shares of\n"
      "the memory bound those of 16 passes each beside the speed of memory before and after them\n",
      m.hidden_size, m.num_hidden_layers, m.vocab_size, with_letter(double(r.weights)), name_of(r.format),
      bytes_text(double(r.weight_bytes)), r.pack_ms, name_of(r.setup.kv), r.setup.context - r.setup.tokens,
      r.setup.tokens - 1);
  HtmlTable table{{"", "tok/s", "ms", "median ms", "of memory bound", "prompt tok/s", "first token ms", "routed", "KV",
                   "of dense KV"},
                  {}};
  for (const GenerationPair& pair : r.pairs)
    for (const auto& [name, t] : timed(pair)) table.rows.push_back(row(name, *t, r));
  text += table_text(table);
  for (const GenerationPair& pair : r.pairs) {
    if (pair.mod)
      text +=
          fmt::format("batch {}: speed MoD / dense {:.3f}; bytes dense / MoD {:.3f}: {:.3f} times\n", pair.dense.batch,
                      pair.speed_ratio(), pair.bytes_ratio(), pair.speed_ratio() / pair.bytes_ratio());
    if (pair.drafting) text += drafting_line(pair, r.setup.speculate);
  }
  if (r.setup.speculate > 0 && r.pairs.front().mod)
    text += "random weights say what a round costs, not how many drafts of a trained model stand\n";
  for (const GenerationPair& pair : r.pairs)
    for (const auto& [name, t] : timed(pair))
      if (profile) text += fmt::format("\n{}, the quickest pass\n{}", name, text_of(t->profile, r.peak, "pass"));
  return text;
}

nlohmann::json to_json(const GenerationReport& r, bool profile) {
  const ModelConfig& m = r.setup.model;
  nlohmann::json json{{"machine", to_json(r.peak)},
                      {"config",
                       {{"hidden_size", m.hidden_size},
                        {"num_hidden_layers", m.num_hidden_layers},
                        {"num_attention_heads", m.num_attention_heads},
                        {"vocab_size", m.vocab_size},
                        {"context", r.setup.context},
                        {"tokens", r.setup.tokens},
                        {"weights", name_of(r.format)},
                        {"kv", name_of(r.setup.kv)}}},
                      {"weights", r.weights},
                      {"weight_bytes", r.weight_bytes},
                      {"read_bytes", r.read_bytes},
                      {"pack_ms", r.pack_ms},
                      {"batches", nlohmann::json::array()}};
  for (const GenerationPair& pair : r.pairs) {
    nlohmann::json batch{{"batch", pair.dense.batch},
                         {pair.mod ? "dense" : "model", times_json(pair.dense, r, profile)}};
    if (pair.mod)
      batch.update({{"mod", times_json(*pair.mod, r, profile)},
                    {"speed_ratio", pair.speed_ratio()},
                    {"bytes_ratio", pair.bytes_ratio()}});
    if (pair.drafting) {
      batch["drafting"] = times_json(*pair.drafting, r, profile);
      batch["drafting"].update({{"drafts", r.setup.speculate},
                                {"accepted_share", pair.drafting->speculation.accepted_share()},
                                {"mean_accepted", pair.drafting->speculation.mean_accepted()},
                                {"round_passes", pair.round_passes()},
                                {"net_speed", pair.net_speed()}});
    }
    json["batches"].push_back(std::move(batch));
  }
  return json;
}

}  // namespace isobath::cli
