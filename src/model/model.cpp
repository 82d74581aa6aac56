#include "model/model.h"

#include "model/activations.h"

namespace isobath {

void Model::prepare(int64_t rows, bool backward, std::vector<int64_t> exact) {
  if (products == nullptr || rows > rows_) {
    rows_ = rows;
    products = std::make_unique<Products>(config(), Products::Sizes{.max_rows = rows,
                                                                    .exact = std::move(exact),
                                                                    .head_rows = head_chunk(config(), rows),
                                                                    .backward = backward});
  }
  products->pack(weights.weights());
}

}  // namespace isobath
