// The MLP half of a block as a mixture of experts, in place of one SwiGLU (docs/design.md, Experts). An expert's rows
// are a sub-list, and its products run over it and nothing else.
//   h = norm2(z),   p = softmax(W h),   m_i = sum over the experts e of row i  w_ie * down_e(swiglu(gate_up_e h_i))
#pragma once

#include "model/section.h"

namespace isobath {

// Before a pass over no rows, which chooses none: statistics are of the last pass.
void choose_no_experts(ExpertActs& x);

// From z (S,D), the norm's input, whose rstd is in b.rstd2. m (S,D); left out: what experts_backward_half reads, and no
// more.
void experts_half(const SectionContext& c, SectionActs& b, CStored z, F32 m);

// dh (S,D), the gradient of the norm's output, from m's gradient dm (S,D). Finishes the losses of the expert router.
void experts_backward_half(const SectionContext& c, SectionActs& b, SectionWeights& g, CStored z, CF32 dm, F32 dh);

}  // namespace isobath
