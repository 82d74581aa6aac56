#include "ops/frozen_linear.h"

#include "base/error.h"
#include "base/work.h"
#include "ops/device.h"
#include "ops/frozen_weights.h"
#include "ops/linear.h"

namespace isobath {

std::string_view name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return "fp32";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kInt8:
      return "int8";
  }
  return "";
}

struct FrozenLinear::State {
  std::string name;
  int64_t max_rows;
  bool matches_linear = false, packed = false;
  frozen::Weights weights;
  View<std::byte> bytes, scratch;
};

FrozenLinear::FrozenLinear() = default;
FrozenLinear::~FrozenLinear() = default;
FrozenLinear::FrozenLinear(FrozenLinear&&) noexcept = default;
FrozenLinear& FrozenLinear::operator=(FrozenLinear&&) noexcept = default;

int64_t FrozenLinear::N() const { return state_ ? state_->weights.N : 0; }
int64_t FrozenLinear::K() const { return state_ ? state_->weights.K : 0; }
WeightFormat FrozenLinear::format() const { return state_ ? state_->weights.format : WeightFormat::kF32; }
int64_t FrozenLinear::chain() const { return state_ ? state_->weights.chain : 0; }
bool FrozenLinear::matches_linear() const { return state_ != nullptr && state_->matches_linear; }

void FrozenLinear::plan(Plan& plan, const std::string& name, const Sizes& sizes) {
  const auto& [N, K, max_rows, format] = sizes;
  require(N > 0 && K > 0 && max_rows > 0,
          "frozen_linear: {} is (N,K)=({},{}) for at most {} rows, expected positive sizes", name, N, K, max_rows);
  state_ = std::make_unique<State>();
  State& s = *state_;
  s.name = name;
  s.max_rows = max_rows;
  const int64_t chain = format == WeightFormat::kInt8 ? 0 : frozen::chain_of_linear(K);
  s.matches_linear = chain > 0;
  s.weights = {.format = format, .N = N, .K = K, .chain = chain > 0 ? chain : frozen::default_chain(K)};
  s.weights.byte_dots = s.weights.grouped() && frozen::cpu::has_byte_dots();
  plan.add(fmt::format("{}.{}", name, name_of(format)), s.bytes, {s.weights.bytes()});
  if (s.weights.grouped())
    plan.add_scratch(name + ".x", s.scratch, max_rows * frozen::groups(K) * int64_t(sizeof(frozen::QuantizedGroup)));
}

void FrozenLinear::pack(CF32 W) {
  if (W.device != Device::kCpu) throw_no_device("frozen_linear", W.device);
  const RawMatrix whole = raw(W);
  pack({&whole, 1});
}

void FrozenLinear::pack(View<const int8_t> code, View<const uint16_t> scale) {
  require(state_ != nullptr && scale.shape == Shape{N(), frozen::groups(K())},
          "frozen_linear: packs scales {}, expected (N,groups)=({},{})", scale.shape, N(), frozen::groups(K()));
  if (code.device != Device::kCpu) throw_no_device("frozen_linear", code.device);
  if (scale.device != Device::kCpu) throw_no_device("frozen_linear", scale.device);
  const RawMatrix whole{RawType::kInt8, code.shape, reinterpret_cast<const std::byte*>(code.data),
                        reinterpret_cast<const std::byte*>(scale.data)};
  pack({&whole, 1});
}

bool FrozenLinear::pack(std::span<const RawMatrix> parts) {
  require(state_ != nullptr && !state_->bytes.empty(), "frozen_linear: pack() before plan() and its arena");
  State& s = *state_;
  int64_t rows = 0;
  for (const RawMatrix& part : parts) {
    require(part.shape.rank() == 2 && part.shape.cols() == K(), "frozen_linear: {} packs W {}, expected (N,K)=({},{})",
            s.name, part.shape, N(), K());
    require(part.type != RawType::kInt8 || s.weights.grouped(),
            "frozen_linear: {} packs int8 codes, but was planned for {}", s.name, name_of(format()));
    rows += part.shape.rows();
  }
  require(rows == N(), "frozen_linear: {} packs {} rows of W, expected (N,K)=({},{})", s.name, rows, N(), K());
  s.weights.data = s.bytes.data;
  s.packed = true;
  return frozen::pack(s.bytes.data, s.weights, parts);
}

void FrozenLinear::forward(F32 y, CF32 x) const {
  constexpr const char* op = "frozen_linear: forward";
  require(state_ != nullptr && state_->packed, "{}: used before pack()", op);
  const State& s = *state_;
  const int64_t M = x.rows();
  const Work work("frozen_linear_forward", {.multiply_adds = linear_multiply_adds(M, N(), K()),
                                            .bytes = bytes_of(y, x) + s.weights.bytes(),
                                            .product = true});
  require(y.cols() == N() && x.cols() == K() && y.rows() == M,
          "{}: {} has shapes {} and {}, expected (M,N)=(M,{}) and (M,K)=(M,{})", op, s.name, y.shape, x.shape, N(),
          K());
  require(M <= s.max_rows, "{}: {} has {} rows, planned for at most {}; plan more or run fewer at once", op, s.name, M,
          s.max_rows);
  if (x.device != Device::kCpu) throw_no_device(op, x.device);
  if (y.device != Device::kCpu) throw_no_device(op, y.device);
  auto* q = reinterpret_cast<frozen::QuantizedGroup*>(s.scratch.data);
  if (s.weights.grouped()) frozen::cpu::quantize_rows(q, x.data, M, K());
  frozen::run(s.weights, y.data, x.data, q, M);
}

}  // namespace isobath
