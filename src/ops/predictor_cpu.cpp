#include "base/simd.h"
#include "ops/predictor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/predictor_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/rows-inl.h"
#include "ops/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

void predictor_forward(F32 p, F32 u, CF32 b1, CF32 w2, CF32 b2) {
  const int64_t P = u.cols();
  parallel_for(u.rows(), row_grain(P), [&](int64_t n) HWY_ATTR {
    float* un = u.row(n);  // (P)
    p[n] = b2[0] + sum_vectors(P, [&](Vec sum, auto at, int64_t i) HWY_ATTR {
             const Vec v = hn::Add(at.load(un + i), at.load(b1.data + i));
             at.store(v, un + i);
             return hn::MulAdd(hn::Mul(v, sigmoid(v).value), at.load(w2.data + i), sum);
           });
  });
}

void predictor_backward(F32 u_to_du, Accum db1, Accum dw2, Accum db2, CF32 dp, CF32 w2, F32 partial) {
  const int64_t N = u_to_du.rows(), P = u_to_du.cols();
  if (N == 0) return;
  parallel_for(kGradChunks, N > row_grain(P) ? 0 : kGradChunks, [&](int64_t chunk) HWY_ATTR {
    float *sum_db1 = partial.row(chunk), *sum_dw2 = sum_db1 + P, *sum_db2 = sum_dw2 + P;
    std::fill_n(sum_db1, 2 * P + 1, 0.0f);
    const Range rows = chunk_of(N, chunk);
    for (int64_t n = rows.begin; n < rows.end; n++) {
      float* un = u_to_du.row(n);  // (P)
      const Vec d = hn::Set(Tag(), dp[n]);
      for_vectors(P, [&](auto at, int64_t i) HWY_ATTR {
        const Vec v = at.load(un + i);
        const Sigmoid sg = sigmoid(v);
        const Vec silu = hn::Mul(v, sg.value), slope = hn::MulAdd(silu, sg.complement, sg.value);
        const Vec du = hn::Mul(hn::Mul(d, at.load(w2.data + i)), slope);
        at.store(du, un + i);
        at.store(hn::Add(at.load(sum_db1 + i), du), sum_db1 + i);
        at.store(hn::MulAdd(d, silu, at.load(sum_dw2 + i)), sum_dw2 + i);
      });
      *sum_db2 += dp[n];
    }
  });
  for (int64_t chunk = 0; chunk < kGradChunks; chunk++) {
    const float* sum = partial.row(chunk);
    for (int64_t i = 0; i < P; i++) db1.view[i] += sum[i];
    for (int64_t i = 0; i < P; i++) dw2.view[i] += sum[P + i];
    db2.view[0] += sum[2 * P];
  }
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(predictor_forward);
HWY_EXPORT(predictor_backward);

namespace cpu {

void predictor_forward(F32 p, F32 u, CF32 b1, CF32 w2, CF32 b2) {
  HWY_DYNAMIC_DISPATCH(predictor_forward)(p, u, b1, w2, b2);
}
void predictor_backward(F32 u_to_du, Accum db1, Accum dw2, Accum db2, CF32 dp, CF32 w2, F32 partial) {
  HWY_DYNAMIC_DISPATCH(predictor_backward)(u_to_du, db1, dw2, db2, dp, w2, partial);
}

}  // namespace cpu
}  // namespace isobath
#endif
