#include "ops/zero_rows.h"

#include <algorithm>

#include "base/parallel.h"
#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {

void zero_rows(F32 x) {
  const Work work("zero_rows", {.bytes = bytes_of(x)});
  if (x.device != Device::kCpu) throw_no_device("zero_rows", x.device);
  parallel_for(x.rows(), row_grain(x.cols()), [&](int64_t n) { std::fill_n(x.row(n), x.cols(), 0.0f); });
}

}  // namespace isobath
