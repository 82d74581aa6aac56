#include "model/model.h"

#include <algorithm>

#include "base/error.h"
#include "model/activations.h"

namespace isobath {

void Model::prepare(int64_t rows, bool backward, std::vector<int64_t> exact, Packing packing) {
  require(!in_file() || (config().quantized && !backward),
          "{}: the matrices were left in their file, which is for generation; load the whole model", file_.where);
  Products::Sizes wanted = planned_;
  wanted.frozen = config().quantized;
  wanted.max_rows = std::max(wanted.max_rows, rows);
  wanted.head_rows = head_chunk(config(), wanted.max_rows);
  wanted.backward |= backward;
  wanted.packing = packing;
  wanted.exact.insert(wanted.exact.end(), exact.begin(), exact.end());
  std::sort(wanted.exact.begin(), wanted.exact.end());
  wanted.exact.erase(std::unique(wanted.exact.begin(), wanted.exact.end()), wanted.exact.end());
  if (products == nullptr || wanted != planned_) {
    products = std::make_unique<Products>(config(), wanted);
    planned_ = wanted;
  }
  pack(*products);
}

void Model::pack(Products& to) const {
  if (in_file())
    to.pack(weights, file_);
  else
    to.pack(weights.weights());
}

}  // namespace isobath
