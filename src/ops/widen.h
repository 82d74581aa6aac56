// to[i] = from[i], exactly, for products that must read fp32.   to, from (S,C)
#pragma once

#include "tensor/stored.h"

namespace isobath {

void widen(F32 to, View<const Bf16> from);

}  // namespace isobath
