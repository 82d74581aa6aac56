// A model's products after calls of prepare() that ask for different things.
#include "model/model.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/compare.h"
#include "support/tiny_model.h"

namespace isobath {
namespace {

using namespace isobath::testing;

struct Prepared : ::testing::Test {
  Model model{[] {
    ModelConfig c = tiny_routed();
    resolve(c, 16);
    return c;
  }()};
  Prepared() { initialize(model.weights, 1); }

  void forward(int64_t rows) {
    const Buffer h = random_buffer({rows, 24}, 3);
    Buffer y({rows, 20});
    model.products->section(1).o.forward(y, h);
  }
  void backward() {
    const Buffer dy = random_buffer({2, 20}, 4);
    Buffer dh({2, 24});
    model.products->section(1).o.backward_input(dh, dy);
  }
};

TEST_F(Prepared, ForwardOnlyThenBackwardHasBackward) {
  model.prepare(8);
  EXPECT_THROW(backward(), Error);
  model.prepare(8, true);
  backward();
}

TEST_F(Prepared, MoreRowsForwardOnlyKeepBackward) {
  model.prepare(8, true);
  model.prepare(40);
  forward(40);
  backward();
}

TEST_F(Prepared, FewerRowsKeepTheMost) {
  model.prepare(40);
  model.prepare(8, true);
  forward(40);
  backward();
}

TEST_F(Prepared, WhatIsThereIsKept) {
  model.prepare(40, true, {7, 40});
  const Products* products = model.products.get();
  model.prepare(8);
  model.prepare(40, true, {40});
  model.prepare(40, false, {7});
  EXPECT_EQ(model.products.get(), products) << "nothing new was asked for";
}

TEST_F(Prepared, NewListSizesGetTheirProducts) {
  model.prepare(40, true, {7});
  EXPECT_EQ(model.planned().exact, (std::vector<int64_t>{7}));
  model.prepare(40, true, {33, 33});
  EXPECT_EQ(model.planned().exact, (std::vector<int64_t>{7, 33}));
  EXPECT_TRUE(model.planned().backward);
  EXPECT_THROW(model.prepare(8, false, {41}), Error) << "more rows than planned";
  model.prepare(8);
  forward(40);
}

}  // namespace
}  // namespace isobath
