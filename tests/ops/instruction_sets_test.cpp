// Every instruction set that the kernels are built for and this machine has: the other op tests see the best one only.
// Results agree with the best set's within rounding.
#include <gtest/gtest.h>

#include "base/simd.h"
// After simd.h, which says what is built.
#include <hwy/highway.h>

#include <vector>

#include "ops/adamw.h"
#include "ops/embedding.h"
#include "ops/residual_add.h"
#include "ops/rmsnorm.h"
#include "ops/router.h"
#include "ops/swiglu.h"
#include "support/compare.h"
#include "support/rows.h"

namespace isobath {
namespace {
using namespace testing;

// One call of every op with vector loops, rows of D; the outputs in a fixed order.
std::vector<Buffer> run_all(int64_t D) {
  constexpr int64_t N = 37, S = 29;
  const Buffer x = random_buffer({N, D}, 1), a = random_buffer({S, D}, 2), m = random_buffer({S, D}, 3);
  const Buffer w = random_buffer({D}, 4), gate = random_buffer({S}, 5), dr = random_buffer({N}, 6);
  const List index = random_rows(S, N, 7);
  const Buffer rows({S, D}), row({S});
  Buffer partial({kGradChunks, D});

  Buffer y = rows, rstd = row, saved = rows, dz = rows, dweight({D}, 1);
  rmsnorm_forward(y, rstd, saved, {x, index, m}, w, 1e-5f);
  rmsnorm_backward(dz, add_to(dweight), a, saved, w, rstd, partial);

  Buffer uv = random_buffer({S, 2 * D}, 8, 5), duv({S, 2 * D}), dh = a;
  swiglu_backward(duv, dh, uv);

  Buffer score({N}), dw({D}, 1), db({1}, 1);
  router_score(score, x, w, {});
  router_backward_weight(add_to(dw), add_to(db), gate, x, index, partial);

  Buffer added = x, delta = rows, ddelta = rows, dgate = row, scattered = x, routed = x;
  residual_add_forward(added, delta, index, gate, a, m);
  residual_add_backward(ddelta, dgate, x, index, gate, delta);
  scatter_add(scattered, index, a, m);
  router_backward_input(routed, dr, w);

  Buffer dtable({N, D}, 1);
  embedding_backward(add_to(dtable), a, index);

  Buffer weight = x, mean = x, square({N, D}, 1), gradient = routed;
  adamw_step(weight, mean, square, gradient, {.lr = 0.1f}, 0.5f, 3);
  std::vector<double> sums(1);
  Buffer norm({1});
  norm[0] = float(sum_of_squares(x, {sums.data(), {1}}));
  return {y,      rstd,  saved,     dz,     dweight, duv,    dh,   score,  dw,       db,  added,
          ddelta, dgate, scattered, routed, dtable,  weight, mean, square, gradient, norm};
}

TEST(InstructionSets, AgreeWithinRounding) {
  const std::vector<int64_t> sets = hwy::SupportedAndGeneratedTargets();
  for (const int64_t D : {1, 3, 16, 37, 203}) {
    const std::vector<Buffer> best = run_all(D);
    for (const int64_t set : sets) {
      hwy::SetSupportedTargetsForTest(set);
      hwy::GetChosenTarget().DeInit();  // the next call chooses again
      const std::vector<Buffer> got = run_all(D);
      for (size_t i = 0; i < best.size(); i++)
        expect_close(got[i].values, best[i].values, 8 + max_abs(best[i]), double(D),
                     fmt::format("{}, output {}, D {}", hwy::TargetName(set), i, D).c_str());
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
}

}  // namespace
}  // namespace isobath
