// The inside of a Tokenizer.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace isobath {

struct Tokenizer::State {
  int32_t bos = -1, eos = -1;
  bool adds_bos = false;
  uint64_t hash = 0;
};

}  // namespace isobath
