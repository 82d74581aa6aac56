// x[n,d] = 0: for rows that several lists add to (scatter_add, residual_add.h).   x (N,D)
#pragma once

#include "tensor/view.h"

namespace isobath {

void zero_rows(F32 x);

}  // namespace isobath
