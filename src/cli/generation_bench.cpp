#include "cli/generation_bench.h"

#include <chrono>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "base/work.h"
#include "cli/terminal.h"
#include "lab/statistics.h"

namespace isobath::cli {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

std::vector<int32_t> random_tokens(int64_t n, int64_t vocab, uint64_t seed) {
  const Rng rng(seed, Stream::kBench);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; i++) tokens.push_back(int32_t(rng.below(std::min<int64_t>(vocab, 256), uint64_t(i))));
  return tokens;
}

}  // namespace

double GenerationTimes::mean_bytes() const { return mean(pass_bytes); }
double GenerationTimes::mean_tokens() const { return mean(pass_tokens); }

double GenerationTimes::quick_bytes_per_ms(size_t first) const {
  std::vector<double> rate;
  for (size_t i = first; i < pass_ms.size(); i++) rate.push_back(pass_bytes[i] / pass_ms[i]);
  return quantile(rate, 0.9);
}

GenerationBench::GenerationBench(const ModelConfig& config, const GenerationSetup& setup, int64_t speculate)
    : setup_(setup), model_(std::make_unique<Model>(config)) {
  setup_.speculate = speculate;
  initialize(model_->weights, 1);
  const Clock::time_point start = Clock::now();
  make_engine(Tokenizer::bytes());
  pack_ms_ = ms_since(start);
}

GenerationBench::GenerationBench(const std::string& folder, const GenerationSetup& setup) : setup_(setup) {
  const Clock::time_point start = Clock::now();
  LoadedModel loaded = load_for_generation(folder);
  model_ = std::move(loaded.model);
  require(config().max_position_embeddings >= 2 * setup.context,
          "{} has a context of {}, expected twice --context, {}: sequences that wait for others write beyond it; set "
          "--context {} or less",
          folder, config().max_position_embeddings, 2 * setup.context, config().max_position_embeddings / 2);
  make_engine(loaded.tokenizer);
  pack_ms_ = ms_since(start);
  forget_packed_weights(*model_);
}

void GenerationBench::make_engine(const Tokenizer& tokenizer) {
  engine_ = std::make_unique<Engine>(
      *model_, tokenizer,
      EngineOptions{.sequences = setup_.sequences,
                    .max_rows = std::max<int64_t>(512, setup_.sequences * (1 + setup_.speculate)),
                    .weights = setup_.weights,
                    .kv = setup_.kv,
                    .prefixes = 0,
                    .speculate = setup_.speculate});
}

// Prompts are read one after the other, so the first ones write while the last ones are read; that is taken back.
void GenerationBench::start(int64_t batch) {
  times_ = {.batch = batch};
  most_bytes_per_ms_ = 0;
  window_ = 0;
  ids_.clear();
  engine_->restart_statistics();
  const Clock::time_point start = Clock::now();
  for (int64_t i = 0; i < batch; i++)
    ids_.push_back(
        *engine_->submit({.prompt = random_tokens(setup_.context - setup_.tokens, config().vocab_size, uint64_t(i)),
                          .max_tokens = 2 * setup_.context,
                          .stop_at_eos = false,
                          .sampling = {.seed = uint64_t(i)},
                          .sequence_id = i}));
  while (engine_->find(ids_.back())->drawn() == 0) engine_->step();
  times_.first_token_ms = ms_since(start);
  times_.prompt_tokens_per_s = engine_->statistics().prefill_tokens_per_second();
  for (const int64_t id : ids_) engine_->rollback(id, engine_->find(id)->drawn() - 1);
  engine_->restart_statistics();
}

void GenerationBench::pass() {
  const Profile profile;
  const int64_t before = engine_->statistics().drawn_tokens;
  const Clock::time_point start = Clock::now();
  engine_->step();
  times_.pass_ms.push_back(ms_since(start));
  double bytes = 0;
  for (const Profile::Op& op : profile.ops())
    if (op.product) bytes += double(op.bytes);
  const double ms = times_.pass_ms.back();
  if (bytes / ms > most_bytes_per_ms_) {
    most_bytes_per_ms_ = bytes / ms;
    times_.profile = OpProfile(ms, profile);
  }
  times_.pass_bytes.push_back(bytes);
  times_.pass_tokens.push_back(double(engine_->statistics().drawn_tokens - before));
}

void GenerationBench::end_window(double read_gb_s) {
  if (window_ == times_.pass_ms.size()) return;  // it waited for others
  times_.bound_shares.push_back(times_.quick_bytes_per_ms(window_) / (read_gb_s * 1e6));
  window_ = times_.pass_ms.size();
}

bool GenerationBench::behind(int64_t tokens) const {
  return engine_->statistics().drawn_tokens < tokens * times_.batch;
}

void GenerationBench::end() {
  const Statistics& s = engine_->statistics();
  double routed = 0;
  for (size_t l = 0; l < s.layer.size(); l++) {
    if (config().section(int64_t(l)).routed) routed += s.share_run(l);
    times_.kv_used_bytes += s.layer[l].kv_used_bytes;
    times_.kv_held_bytes += s.layer[l].kv_held_bytes;
    times_.kv_dense_bytes += s.layer[l].kv_dense_bytes;
  }
  times_.speculation = s.speculation;
  if (config().routers() > 0) times_.routed_share = routed / double(config().routers());
  for (const int64_t id : ids_) engine_->cancel(id);
}

GenerationReport bench_generation(const GenerationSetup& setup, const std::vector<int64_t>& batches,
                                  const std::string& folder) {
  constexpr double kPeakSeconds = 0.2;
  constexpr int64_t kWindow = 16;                         // passes; memory may have another speed a second later
  std::vector<std::unique_ptr<GenerationBench>> benches;  // dense, mod, mod drafting; or the folder's model
  if (folder.empty()) {
    benches.push_back(std::make_unique<GenerationBench>(dense_twin(setup.model), setup));
    benches.push_back(std::make_unique<GenerationBench>(setup.model, setup));
    if (setup.speculate > 0) benches.push_back(std::make_unique<GenerationBench>(setup.model, setup, setup.speculate));
  } else {
    benches.push_back(std::make_unique<GenerationBench>(folder, setup));
  }
  const GenerationBench& first = *benches[0];
  GenerationReport report{.setup = setup,
                          .format = first.format(),
                          .weights = first.weights(),
                          .weight_bytes = first.weight_bytes(),
                          .read_bytes = 0,
                          .pack_ms = first.pack_ms(),
                          .peak = {},
                          .pairs = {}};
  if (!folder.empty()) report.setup.model = first.config();
  std::vector<double> fma, read;
  MemoryReader reader(std::max(MemoryReader::kBytes, first.weight_bytes()));
  report.read_bytes = reader.bytes();
  const auto measure = [&] {
    report.peak = measure_machine_peak(kPeakSeconds, reader);
    fma.push_back(report.peak.fma_gflop_s);
    read.push_back(report.peak.read_gb_s);
  };
  Progress progress("pass");
  for (size_t b = 0; b < batches.size(); b++) {
    for (const auto& bench : benches) bench->start(batches[b]);
    measure();
    const int64_t passes = setup.tokens - 1;
    for (int64_t pass = 0; pass < passes; pass++) {
      for (const auto& bench : benches)  // equal lengths, so a round waits until the others have as many tokens
        if (bench->behind(pass + 1)) bench->pass();
      if ((pass + 1) % kWindow == 0 || pass + 1 == passes) {
        measure();
        for (const auto& bench : benches) bench->end_window((read.end()[-2] + read.back()) / 2);
      }
      progress.update(int64_t(b) * setup.tokens + pass + 1, int64_t(batches.size()) * setup.tokens, "");
    }
    for (const auto& bench : benches) bench->end();
    report.pairs.push_back({.dense = first.times()});
    if (benches.size() > 1) report.pairs.back().mod = benches[1]->times();
    if (benches.size() > 2) report.pairs.back().drafting = benches[2]->times();
  }
  progress.clear();
  report.peak.fma_gflop_s = median(fma);
  report.peak.read_gb_s = median(read);
  return report;
}

// What can be judged at this size: memory speed where the weights are far beyond the caches, the rest where it is
// asked.
std::vector<Goal> goals_of(const GenerationReport& r) {
  constexpr int64_t kManyWeights = 100'000'000, kManySequences = 64, kContext = 512, kSmallVocabulary = 1024;
  std::vector<Goal> goals;
  const auto at_least = [&](const char* name, const std::string& what, double value, double limit) {
    goals.push_back(
        {name, fmt::format("{} at least {:.2f}: {:.3f}", what, limit, value), value, limit, value >= limit});
  };
  for (const GenerationPair& pair : r.pairs) {
    if (pair.dense.batch == 1 && r.weights >= kManyWeights) {
      if (r.format != WeightFormat::kInt8)
        at_least("dense_bound_share", "batch 1, dense, share of the memory bound", pair.dense.bound_share(),
                 r.format == WeightFormat::kF32 ? 0.88 : 0.80);
      if (pair.mod)
        at_least("mod_over_bytes", "batch 1, speed MoD / dense over the ratio of bytes",
                 pair.speed_ratio() / pair.bytes_ratio(), 0.93);
    }
    if (!pair.mod || pair.dense.batch < kManySequences || r.setup.context < kContext) continue;
    if (r.setup.model.vocab_size <= kSmallVocabulary)
      at_least("mod_speed", fmt::format("batch {}, speed MoD / dense", pair.dense.batch), pair.speed_ratio(), 1.5);
    double implied = 0;
    for (int64_t l = 0; l < r.setup.model.sections(); l++)
      if (const Section section = r.setup.model.section(l); section.attention())
        implied += r.setup.model.capacity(section) / double(r.setup.model.num_hidden_layers);
    const double value = double(pair.mod->kv_held_bytes) / (implied * double(pair.mod->kv_dense_bytes));
    goals.push_back(
        {"mod_kv_bytes",
         fmt::format("batch {}, bytes held for keys and values at most 1.10 times what the capacity implies: "
                     "{:.3f}",
                     pair.dense.batch, value),
         value, 1.1, value <= 1.1});
  }
  return goals;
}

}  // namespace isobath::cli
