// to[i] = from[i], for products that must read fp32. from (S,C) fp32 or bf16   to (S,C), which may be an fp32 from:
// then nothing is done.
#pragma once

#include "tensor/stored.h"

namespace isobath {

void widen(F32 to, CStored from);

}  // namespace isobath
