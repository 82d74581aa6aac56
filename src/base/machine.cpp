#include "base/machine.h"

#include "base/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/machine.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "base/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Chains of dependent FMAs: as many as hide the latency of the FMA units (2 units, 4 to 5 cycles) and stay in the
// registers with two operands, of which there are 32 with AVX-512 and NEON, 16 before.
constexpr size_t kChains = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM ? 24 : 12;

// Multiplies and adds `rounds` times in every chain, returns the FLOPs. `factor` and `term` are unknown to the
// compiler, so nothing folds. With 0.5 and 1 the chains settle at 2: neither denormal nor infinite.
template <size_t... i>
double run_chains(int64_t rounds, float factor, float term, float* sink, std::index_sequence<i...>) {
  const hn::ScalableTag<float> tag;
  const auto a = hn::Set(tag, factor), b = hn::Set(tag, term);
  hn::Vec<hn::ScalableTag<float>> chain[] = {hn::Set(tag, term + float(i))...};
  for (int64_t round = 0; round < rounds; round++) ((chain[i] = hn::MulAdd(chain[i], a, b)), ...);
  auto sum = hn::Zero(tag);
  ((sum = hn::Add(sum, chain[i])), ...);
  *sink = hn::GetLane(hn::SumOfLanes(tag, sum));
  return 2.0 * double(rounds) * double(sizeof...(i)) * double(hn::Lanes(tag));
}
double run_fma(int64_t rounds, float factor, float term, float* sink) {
  return run_chains(rounds, factor, term, sink, std::make_index_sequence<kChains>());
}

// Reads n floats, n a multiple of 256 (four vectors of any width that we build for).
float run_read(const float* from, int64_t n) {
  const hn::ScalableTag<float> tag;
  const int64_t L = int64_t(hn::Lanes(tag));
  auto s0 = hn::Zero(tag), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i < n; i += 4 * L) {
    s0 = hn::Add(s0, hn::LoadU(tag, from + i));
    s1 = hn::Add(s1, hn::LoadU(tag, from + i + L));
    s2 = hn::Add(s2, hn::LoadU(tag, from + i + 2 * L));
    s3 = hn::Add(s3, hn::LoadU(tag, from + i + 3 * L));
  }
  return hn::GetLane(hn::SumOfLanes(tag, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// Highway counts AVX-512 and its extensions as AVX3, AVX3_DL, AVX3_ZEN4 and so on.
std::string simd_name() {
  const std::string name = hwy::TargetName(HWY_TARGET);
  return name.starts_with("AVX3") ? "AVX-512" : name;
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {

namespace {

HWY_EXPORT(run_fma);
HWY_EXPORT(run_read);
HWY_EXPORT(simd_name);

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The sum over threads of each one's best rate of work per second. All run at once, in pieces shorter than a time
// slice, each against its own clock: other load on the machine slows some pieces, not the best. make_run() is called on
// the thread and returns a function that does one piece and returns its work.
template <class MakeRun>
double best_rate(int threads, double seconds, MakeRun make_run) {
  std::vector<double> best(size_t(threads), 0.0);
  parallel_for(threads, 0, [&](int64_t thread) {
    auto run = make_run();
    const double start = now_s();
    for (int times = 0; times < 3 || now_s() - start < seconds; times++) {
      const double begin = now_s(), work = run();
      best[size_t(thread)] = std::max(best[size_t(thread)], work / (now_s() - begin));
    }
  });
  return std::accumulate(best.begin(), best.end(), 0.0);
}

double fma_flop_s(int threads, double seconds) {
  constexpr int64_t kRounds = 50'000;  // about half a millisecond
  const volatile float factor = 0.5f, term = 1;
  std::atomic<float> sink{0};
  return best_rate(threads, seconds, [&] {
    return [&] {
      float sum = 0;
      const double flops = HWY_DYNAMIC_DISPATCH(run_fma)(kRounds, factor, term, &sum);
      sink = sum;
      return flops;
    };
  });
}

// Memory as the arena has it: on huge pages where the system grants them. Reading through small ones is slower.
class Floats {
 public:
  explicit Floats(int64_t n) : bytes_(size_t(n) * sizeof(float)) {
    void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    ::madvise(at, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<float*>(at);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() { ::munmap(data_, bytes_); }
  float* data() const { return data_; }

 private:
  float* data_;
  size_t bytes_;
};

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "unknown";
}

}  // namespace

struct MemoryReader::Memory {
  int64_t floats;  // of a thread
  std::vector<std::unique_ptr<Floats>> of_thread;
};

MemoryReader::MemoryReader(int64_t bytes) : memory_(std::make_unique<Memory>()) {
  constexpr int64_t kStep = 256, kLeast = int64_t(1) << 18;  // of run_read; and of a thread
  const int threads = thread_count();
  const int64_t floats = std::max(kLeast, bytes / int64_t(sizeof(float)) / threads / kStep * kStep);
  memory_->floats = floats;
  for (int thread = 0; thread < threads; thread++) memory_->of_thread.push_back(std::make_unique<Floats>(floats));
  parallel_for(threads, 0, [&](int64_t thread) {  // first touched by its thread
    std::fill_n(memory_->of_thread[size_t(thread)]->data(), floats, 1.0f);
  });
}
MemoryReader::~MemoryReader() = default;

int64_t MemoryReader::bytes() const {
  return int64_t(memory_->of_thread.size()) * memory_->floats * int64_t(sizeof(float));
}

// Threads share the way to memory, so they read at once, in rounds that end with the last one.
double MemoryReader::gb_s(double seconds) {
  std::atomic<float> sink{0};
  double best = 0;
  const double start = now_s();
  for (int times = 0; times < 3 || now_s() - start < seconds; times++) {
    const double begin = now_s();
    parallel_for(int64_t(memory_->of_thread.size()), 0, [&](int64_t thread) {
      sink = HWY_DYNAMIC_DISPATCH(run_read)(memory_->of_thread[size_t(thread)]->data(), memory_->floats);
    });
    best = std::max(best, double(bytes()) / (now_s() - begin));
  }
  return best / 1e9;
}

MachinePeak measure_machine_peak(double seconds) {
  MemoryReader reader;
  return measure_machine_peak(seconds, reader);
}

MachinePeak measure_machine_peak(double seconds, MemoryReader& reader) {
  const int threads = thread_count();
  return {.fma_gflop_s = fma_flop_s(threads, seconds / 2) / 1e9,
          .read_gb_s = reader.gb_s(seconds / 2),
          .cpu = cpu_name(),
          .threads = threads,
          .simd = HWY_DYNAMIC_DISPATCH(simd_name)()};
}

}  // namespace isobath
#endif
