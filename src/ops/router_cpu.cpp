#include "base/simd.h"
#include "ops/router.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/router_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

void router_score(F32 r, CF32 x, CF32 w, CF32 b) {
  const int64_t N = x.rows(), D = x.cols();
  const float bias = b.empty() ? 0 : b[0];
  parallel_for(N, row_grain(D), [&](int64_t n) HWY_ATTR {
    const float* row = x.row(n);
    r[n] = bias + sum_vectors(D, [&](Vec sum, auto at, int64_t i)
                                     HWY_ATTR { return hn::MulAdd(at.load(row + i), at.load(w.data + i), sum); });
  });
}

void router_score_normed(F32 r, F32 rstd, CF32 x, CF32 w, CF32 b, float eps) {
  const int64_t N = x.rows(), D = x.cols();
  const float bias = b.empty() ? 0 : b[0];
  parallel_for(N, row_grain(D), [&](int64_t n) HWY_ATTR {
    const float* row = x.row(n);
    const float squares = sum_vectors(D, [&](Vec sum, auto at, int64_t i) HWY_ATTR {
      const Vec v = at.load(row + i);
      return hn::MulAdd(v, v, sum);
    });
    rstd[n] = 1 / std::sqrt(squares / float(D) + eps);
    const float dot = sum_vectors(D, [&](Vec sum, auto at, int64_t i)
                                         HWY_ATTR { return hn::MulAdd(at.load(row + i), at.load(w.data + i), sum); });
    r[n] = dot * rstd[n] + bias;
  });
}

void router_backward_input_normed(F32 dx, CF32 dr, CF32 x, CF32 w, CF32 b, CF32 r, CF32 rstd) {
  const int64_t N = dx.rows(), D = dx.cols();
  const float bias = b.empty() ? 0 : b[0];
  parallel_for(N, row_grain(D), [&](int64_t n) HWY_ATTR {
    float* to = dx.row(n);
    const float* row = x.row(n);
    const Vec of_w = hn::Set(Tag(), dr[n] * rstd[n]);
    const Vec of_x = hn::Set(Tag(), -dr[n] * rstd[n] * (r[n] - bias) * rstd[n] / float(D));
    for_vectors(D, [&](auto at, int64_t i) HWY_ATTR {
      const Vec sum = hn::MulAdd(of_w, at.load(w.data + i), at.load(to + i));
      at.store(hn::MulAdd(of_x, at.load(row + i), sum), to + i);
    });
  });
}

void restore_rows(F32 x, CI32 index, CStored saved) {
  const int64_t D = x.cols();
  with_format(saved, [&](auto rows) {
    parallel_for(rows.rows(), row_grain(D), [&](int64_t s) HWY_ATTR {
      const auto* from = rows.row(s);
      float* to = x.row(index.empty() ? s : index[s]);
      for_vectors(D, [&](auto at, int64_t i) HWY_ATTR { at.store(at.load(from + i), to + i); });
    });
  });
}

void router_backward_weight(Accum dw, Accum db, CF32 dr, CStored x, CI32 index, F32 partial, const RouterRms& rms) {
  const int64_t S = dr.numel(), D = x.cols();
  with_format(x, [&](auto rows) {
    sum_rows(dw.view.data, partial, S, [&](float* sum, int64_t s) HWY_ATTR {
      const auto* row = rows.row(index.empty() ? s : index[s]);
      const float norm = rms.rstd.empty() ? 1 : rms.rstd[rms.row.empty() ? s : rms.row[s]];
      const Vec scale = hn::Set(Tag(), dr[s] * norm);
      for_vectors(D, [&](auto at, int64_t i)
                         HWY_ATTR { at.store(hn::MulAdd(scale, at.load(row + i), at.load(sum + i)), sum + i); });
    });
  });
  if (db.view.empty()) return;
  db.view[0] +=
      sum_vectors(S, [&](Vec sum, auto at, int64_t i) HWY_ATTR { return hn::Add(sum, at.load(dr.data + i)); });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(router_score);
HWY_EXPORT(router_score_normed);
HWY_EXPORT(router_backward_weight);
HWY_EXPORT(restore_rows);
HWY_EXPORT(router_backward_input_normed);

namespace cpu {

void router_score(F32 r, CF32 x, CF32 w, CF32 b) { HWY_DYNAMIC_DISPATCH(router_score)(r, x, w, b); }

void router_score_normed(F32 r, F32 rstd, CF32 x, CF32 w, CF32 b, float eps) {
  HWY_DYNAMIC_DISPATCH(router_score_normed)(r, rstd, x, w, b, eps);
}

void router_backward_weight(Accum dw, Accum db, CF32 dr, CStored x, CI32 index, F32 partial, const RouterRms& rms) {
  HWY_DYNAMIC_DISPATCH(router_backward_weight)(dw, db, dr, x, index, partial, rms);
}

void router_backward_input_normed(F32 dx, CF32 dr, CF32 x, CF32 w, CF32 b, CF32 r, CF32 rstd) {
  HWY_DYNAMIC_DISPATCH(router_backward_input_normed)(dx, dr, x, w, b, r, rstd);
}

void restore_rows(F32 x, CI32 index, CStored saved) { HWY_DYNAMIC_DISPATCH(restore_rows)(x, index, saved); }

namespace {
constexpr int64_t kGateGrain = 1024;

// sigmoid(r); 1 - sigmoid(r) = sigmoid(-r) without cancellation.
float sigmoid(float r) { return 1 / (1 + std::exp(-r)); }

template <class F>
void for_listed(int64_t S, CF32 r, CI32 index, F f) {
  parallel_for(S, kGateGrain, [&](int64_t s) { f(s, r[index.empty() ? s : index[s]]); });
}
}  // namespace

void gate_forward(F32 g, CF32 r, CI32 index, Gate gate) {
  for_listed(g.numel(), r, index, [&](int64_t s, float score) {
    switch (gate) {
      case Gate::kRaw:
        g[s] = score;
        break;
      case Gate::kSigmoid:
        g[s] = sigmoid(score);
        break;
      case Gate::kTanh:
        g[s] = std::tanh(score);
        break;
    }
  });
}

void gate_backward(F32 dr, CF32 dg, CF32 r, CI32 index, Gate gate) {
  for_listed(dr.numel(), r, index, [&](int64_t s, float score) {
    switch (gate) {
      case Gate::kRaw:
        dr[s] = dg[s];
        break;
      case Gate::kSigmoid:
        dr[s] = dg[s] * sigmoid(score) * sigmoid(-score);
        break;
      case Gate::kTanh:
        dr[s] = dg[s] * (4 * sigmoid(2 * score) * sigmoid(-2 * score));
        break;
    }
  });
}

}  // namespace cpu
}  // namespace isobath
#endif
