#include "fuzz/text_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  isobath::fuzz::tokenizer_json({reinterpret_cast<const char*>(data), size});
  return 0;
}
