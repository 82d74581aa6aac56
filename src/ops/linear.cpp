#include "ops/linear.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/work.h"
#include "ops/device.h"
#include "ops/linear_products.h"

namespace isobath {

namespace {

// The row counts that get a product of their own. A list of any other length is run as the largest that fit, so this
// set decides how often the weights are read. Generation lives on few rows, which cost what reading the weights costs:
// every count up to 16, and four to the octave above. Training meets odd lengths at the end of a text or with documents
// for sequences; its set is dense only where that was seen to matter, because each count has three products there,
// which take some 60 kB each of the library's own memory (once for all Linears of one shape) and 0.1 ms to build.
std::vector<int64_t> planned_rows(const Linear::Sizes& sizes) {
  std::set<int64_t> rows{sizes.max_rows};
  for (int64_t octave = 1; octave < sizes.max_rows; octave *= 2) {
    const int64_t training = octave < 128 ? 1 : octave < 1024 ? 4 : 2, generation = octave < 16 ? octave : 4;
    const int64_t step = octave / (sizes.backward ? training : generation);
    for (int64_t m = octave; m < std::min(2 * octave, sizes.max_rows); m += step) rows.insert(m);
  }
  for (const int64_t m : sizes.exact)
    if (m > 0) rows.insert(m);
  return {rows.begin(), rows.end()};
}

}  // namespace

struct Linear::State {
  std::string name;
  int64_t N, K, max_rows;
  bool backward;
  PackingRoom* room;
  std::vector<int64_t> rows;  // ascending, from 1
  cpu::LinearProducts products;
  bool packed = false;

  State(const std::string& name, const Sizes& sizes)
      : name(name),
        N(sizes.N),
        K(sizes.K),
        max_rows(sizes.max_rows),
        backward(sizes.backward),
        room(sizes.room),
        rows(planned_rows(sizes)),
        products(N, K, rows, backward, room) {}

  void check(const char* op, CF32 y, CF32 x) const {
    require(packed, "{}: {} is used before pack()", op, name);
    require(y.cols() == N && x.cols() == K && y.rows() == x.rows(),
            "{}: {} has shapes {} and {}, expected (M,N)=(M,{}) and (M,K)=(M,{})", op, name, y.shape, x.shape, N, K);
    require(x.rows() <= max_rows, "{}: {} has {} rows, planned for at most {}; plan more or run fewer at once", op,
            name, x.rows(), max_rows);
    if (x.device != Device::kCpu) throw_no_device(op, x.device);
    if (y.device != Device::kCpu) throw_no_device(op, y.device);
  }

  // Of a product over M rows that touches the weights, or their gradient, so many times.
  Cost cost(int64_t M, int64_t times) const {
    const int64_t floats = M * N + M * K + times * N * K;
    return {.multiply_adds = linear_multiply_adds(M, N, K), .bytes = floats * int64_t(sizeof(float)), .product = true};
  }

  // run(place in `rows`, first row) for the pieces of a list of M rows, the largest first.
  template <class Run>
  void for_each_piece(int64_t M, int64_t most, Run run) const {
    for (int64_t begin = 0; begin < M;) {
      const auto next = std::upper_bound(rows.begin(), rows.end(), std::min(M - begin, most));
      run(size_t(next - rows.begin()) - 1, begin);
      begin += *(next - 1);
    }
  }
};

Linear::Linear() = default;
Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

int64_t Linear::N() const { return state_ ? state_->N : 0; }
int64_t Linear::K() const { return state_ ? state_->K : 0; }

void Linear::plan(Plan& plan, const std::string& name, const Sizes& sizes) {
  require(sizes.N > 0 && sizes.K > 0 && sizes.max_rows > 0,
          "linear: {} is (N,K)=({},{}) for at most {} rows, expected positive sizes", name, sizes.N, sizes.K,
          sizes.max_rows);
  for (const int64_t m : sizes.exact)
    require(m <= sizes.max_rows, "linear: {} has an exact size of {} rows, over its largest, {}", name, m,
            sizes.max_rows);
  state_ = std::make_unique<State>(name, sizes);
  state_->products.plan(plan, name);
}

void Linear::pack(CF32 W) {
  require(state_ != nullptr && state_->products.bound(), "linear: pack() before plan() and its arena");
  require(W.shape == Shape{N(), K()}, "linear: {} packs W {}, expected (N,K)=({},{})", state_->name, W.shape, N(), K());
  if (W.device != Device::kCpu) throw_no_device("linear", W.device);
  state_->packed = true;
  if (state_->room != nullptr) return state_->products.pack(W.data);
  const Work work("linear_pack", {.bytes = (state_->backward ? 3 : 2) * bytes_of(W)});
  state_->products.pack(W.data);
}

void Linear::forward(F32 y, CF32 x) const {
  require(state_ != nullptr, "linear: forward before plan()");
  State& s = *state_;
  const Work work("linear_forward", s.cost(x.rows(), 1));
  s.check("linear: forward", y, x);
  s.for_each_piece(x.rows(), s.max_rows,
                   [&](size_t place, int64_t m) { s.products.forward(place, y.row(m), x.row(m)); });
}

void Linear::backward_input(F32 dx, CF32 dy) const {
  require(state_ != nullptr && state_->backward, "linear: backward_input of a product planned forward only");
  State& s = *state_;
  const Work work("linear_backward_input", s.cost(dy.rows(), 1));
  s.check("linear: backward_input", dy, dx);
  s.for_each_piece(dy.rows(), s.max_rows,
                   [&](size_t place, int64_t m) { s.products.backward_input(place, dx.row(m), dy.row(m)); });
}

void Linear::backward_weight(Accum dW, CF32 dy, CF32 x) const {
  require(state_ != nullptr && state_->backward, "linear: backward_weight of a product planned forward only");
  State& s = *state_;
  const Work work("linear_backward_weight", s.cost(x.rows(), 2));
  s.check("linear: backward_weight", dy, x);
  require(dW.view.shape == Shape{s.N, s.K}, "linear: backward_weight: {} has dW {}, expected (N,K)=({},{})", s.name,
          dW.view.shape, s.N, s.K);
  s.for_each_piece(x.rows(), cpu::kMostWeightRows, [&](size_t place, int64_t m) {
    s.products.backward_weight(place, dW.view.data, dy.row(m), x.row(m));
  });
}

}  // namespace isobath
