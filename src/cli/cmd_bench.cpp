#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "train/step_bench.h"

namespace isobath::cli {
namespace {

struct Arguments {
  OptionFlags flags;
  int64_t vocab_size = 257, pairs = 5, threads = 0;
  bool json = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath bench                                      width 384, 6 blocks, 4 x 1024 tokens\n"
    "  isobath bench --hidden-size 768 --num-hidden-layers 12 --num-attention-heads 12 --batch 2\n"
    "Dense and Mixture-of-Depths steps take turns in one run, so that a busy machine slows both; ratios are medians "
    "of\n"
    "the pairs. Shares are of the fp32 FMA peak measured in the same run: causal half of attention, no recompute.";

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::string spread(const std::vector<double>& values, int digits) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", median(values), digits, *low, digits, *high, digits);
}

int run_bench(const Arguments& a) {
  if (a.threads > 0) set_thread_count(int(a.threads));
  RunConfig run;
  run.model.hidden_size = 384;
  run.model.num_hidden_layers = 6;
  run.model.num_attention_heads = 6;
  run.model.routing.topology = Topology::kJoint;
  run.data.context = 1024;
  run.data.batch = 4;
  a.flags.apply(run);
  run.model.vocab_size = a.vocab_size;
  resolve(run.model, run.data.context);
  require(run.model.routed_blocks() > 0,
          "bench compares a routed model with its dense twin; topology = dense has none");
  ModelConfig dense_config = dense_twin(run.model);
  StepBench dense(dense_config, run.data.batch, run.data.context), mod(run.model, run.data.batch, run.data.context);
  Progress progress("pair");
  dense.step_ms();  // the first touch of memory is not a step's cost
  mod.step_ms();
  std::vector<double> dense_ms, mod_ms, ratio, dense_share, mod_share;
  MachinePeak peak{};
  for (int64_t pair = 0; pair < a.pairs; pair++) {
    peak = measure_machine_peak(0.2);
    dense_ms.push_back(dense.step_ms());
    mod_ms.push_back(mod.step_ms());
    ratio.push_back(mod_ms.back() / dense_ms.back());
    dense_share.push_back(100 * dense.utilisation_flops() / (dense_ms.back() * 1e6) / peak.fma_gflop_s);
    mod_share.push_back(100 * mod.utilisation_flops() / (mod_ms.back() * 1e6) / peak.fma_gflop_s);
    progress.update(pair + 1, a.pairs, "");
  }
  progress.clear();
  const double flop_ratio = mod.model_flops() / dense.model_flops();
  const double share_ratio = mod.utilisation_flops() / dense.utilisation_flops();
  const double rows = double(run.data.batch * run.data.context);
  if (a.json) {
    std::printf("%s\n", nlohmann::json{{"dense_ms", median(dense_ms)},
                                       {"mod_ms", median(mod_ms)},
                                       {"dense_peak_share", median(dense_share) / 100},
                                       {"mod_peak_share", median(mod_share) / 100},
                                       {"time_ratio", median(ratio)},
                                       {"flop_ratio", flop_ratio},
                                       {"half_attention_flop_ratio", share_ratio},
                                       {"peak_gflop_s", peak.fma_gflop_s}}
                            .dump(2)
                            .c_str());
    return 0;
  }
  std::printf("%s, %d threads, %s: %.0f GFLOP/s fp32, %.0f GB/s reading\n", peak.cpu.c_str(), peak.threads,
              peak.simd.c_str(), peak.fma_gflop_s, peak.read_gb_s);
  std::printf("width %lld, %lld blocks, %lld x %lld tokens; %lld pairs, median (least to most)\n",
              static_cast<long long>(run.model.hidden_size), static_cast<long long>(run.model.num_hidden_layers),
              static_cast<long long>(run.data.batch), static_cast<long long>(run.data.context),
              static_cast<long long>(a.pairs));
  std::printf("dense  step %s ms  %s tok/s  %s%% of peak  %s planned\n", spread(dense_ms, 1).c_str(),
              with_letter(rows / median(dense_ms) * 1e3).c_str(), spread(dense_share, 1).c_str(),
              bytes_text(double(dense.planned_bytes())).c_str());
  std::printf("MoD    step %s ms  %s tok/s  %s%% of peak  %s planned\n", spread(mod_ms, 1).c_str(),
              with_letter(rows / median(mod_ms) * 1e3).c_str(), spread(mod_share, 1).c_str(),
              bytes_text(double(mod.planned_bytes())).c_str());
  std::printf("time MoD / dense %s; FLOPs MoD / dense %.3f (causal half %.3f): %.3f (%.3f) times the FLOP ratio\n",
              spread(ratio, 3).c_str(), flop_ratio, share_ratio, median(ratio) / flop_ratio,
              median(ratio) / share_ratio);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("bench", "Time training steps, dense and Mixture-of-Depths, in one run");
  command->footer(kFooter);
  a->flags.add(*command, {"model", "routing", "data"});
  command->add_option("--vocab-size", a->vocab_size, "entries of the vocabulary")->capture_default_str();
  command->add_option("--pairs", a->pairs, "steps of each")
      ->check(CLI::Range(int64_t{1}, int64_t{10000}))
      ->capture_default_str();
  command->add_option("--threads", a->threads, "0: as many as there are cores")->capture_default_str();
  command->add_flag("--json", a->json, "print a JSON object");
  command->callback([a, &run] { run = [a] { return run_bench(*a); }; });
}

}  // namespace isobath::cli
