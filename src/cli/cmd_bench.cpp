#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/machine.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "cli/step_bench.h"

namespace isobath::cli {
namespace {

struct Arguments {
  OptionFlags flags;
  int64_t context = 1024, batch = 4, vocab_size = 257, pairs = 5;
  bool json = false, check = false;
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
  RunConfig run;
  run.model.hidden_size = 384;
  run.model.num_hidden_layers = 6;
  run.model.num_attention_heads = 6;
  run.model.routing.topology = Topology::kJoint;
  run.data.context = a.context;
  run.data.batch = a.batch;
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
  constexpr double kLeastShare = 50, kMostOverFlops = 1.08;
  const bool fast = median(dense_share) >= kLeastShare, free = median(ratio) <= kMostOverFlops * flop_ratio;
  const int code = a.check && !(fast && free) ? 1 : 0;
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
    return code;
  }
  std::printf("%s, %d threads, %s: %.0f GFLOP/s fp32, %.0f GB/s reading\n", peak.cpu.c_str(), peak.threads,
              peak.simd.c_str(), peak.fma_gflop_s, peak.read_gb_s);
  std::printf("width %lld, %lld blocks, %lld x %lld tokens; %lld pairs, median (least to most)\n",
              static_cast<long long>(run.model.hidden_size), static_cast<long long>(run.model.num_hidden_layers),
              static_cast<long long>(a.batch), static_cast<long long>(a.context), static_cast<long long>(a.pairs));
  const auto line = [&](const char* name, const StepBench& bench, const std::vector<double>& ms,
                        const std::vector<double>& share) {
    std::printf("%-6s step %s ms  %s tok/s  %s%% of peak  %s planned\n", name, spread(ms, 1).c_str(),
                with_letter(rows / median(ms) * 1e3).c_str(), spread(share, 1).c_str(),
                bytes_text(double(bench.planned_bytes())).c_str());
  };
  line("dense", dense, dense_ms, dense_share);
  line("MoD", mod, mod_ms, mod_share);
  std::printf("time MoD / dense %s; FLOPs MoD / dense %.3f (attention's causal half: %.3f)\n", spread(ratio, 3).c_str(),
              flop_ratio, share_ratio);
  std::printf("goal: a dense step at %.0f%% of peak or more: %.1f%%, %s\n", kLeastShare, median(dense_share),
              fast ? "holds" : "DOES NOT HOLD");
  std::printf("goal: MoD / dense time at most %.2f times the FLOP ratio: %.3f times, %s\n", kMostOverFlops,
              median(ratio) / flop_ratio, free ? "holds" : "DOES NOT HOLD");
  return code;
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("bench", "Time training steps, dense and Mixture-of-Depths, in one run");
  command->footer(kFooter);
  a->flags.add(*command, {"model", "routing"});
  command->add_option("--context", a->context, "tokens per sequence")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--batch", a->batch, "sequences per step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--vocab-size", a->vocab_size, "entries of the vocabulary")->capture_default_str();
  command->add_option("--pairs", a->pairs, "steps of each")
      ->check(CLI::Range(int64_t{1}, int64_t{10000}))
      ->capture_default_str();
  add_threads(*command);
  command->add_flag("--check", a->check, "exit with 1 unless both goals hold");
  command->add_flag("--json", a->json, "print a JSON object");
  command->callback([a, &run] { run = [a] { return run_bench(*a); }; });
}

}  // namespace isobath::cli
