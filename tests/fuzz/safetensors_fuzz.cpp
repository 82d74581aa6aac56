// Any bytes at all: the reader accepts them or throws Error, and whatever it accepts lies inside them.
// Build with clang++ -fsanitize=fuzzer,address,undefined.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  try {
    size_t covered = 0;
    for (const auto& [name, tensor] : isobath::parse_safetensors(file, "fuzz").tensors) {
      for (const std::byte b : tensor.bytes) static_cast<void>(*const_cast<const volatile std::byte*>(&b));
      covered += tensor.bytes.size();
    }
    if (covered > size) __builtin_trap();
  } catch (const isobath::Error&) {
  }
  return 0;
}
