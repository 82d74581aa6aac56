// Where an op finds that its tensor lives where no code of it was built.
#pragma once

#include <string_view>

#include "base/error.h"
#include "tensor/view.h"

namespace isobath {

[[noreturn]] inline void throw_no_device(std::string_view op, Device device) {
  fail("{}: a tensor is on device {}, but this program was built for the CPU only", op, int(device));
}

}  // namespace isobath
