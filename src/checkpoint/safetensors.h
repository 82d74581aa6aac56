// Safetensors files: a strict reader and a writer. Moves named tensors; knows no model.
// Format: u64 little-endian header length, JSON header, bytes (huggingface/safetensors, README "Format").
// Reading is by memory map: opening is immediate, tensors are copied where they are wanted.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/view.h"

namespace isobath {

struct StoredTensor {
  std::string dtype;                  // "F32", "BF16", "F16", "I64", ...
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;   // may be unaligned
};

class SafetensorsFile {
 public:
  // Throws Error naming the file and the rule it breaks, for every file that a strict reader should refuse.
  explicit SafetensorsFile(const fs::path& path);
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  MappedFile file_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// All tensors of a folder: model.safetensors, or the shards that model.safetensors.index.json names.
class TensorFolder {
 public:
  explicit TensorFolder(const fs::path& folder);
  bool has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::string> names() const;
  // Copies to float32 from F32, BF16 or F16. Throws Error if it is missing, of another type, or of another shape.
  void read(const std::string& name, F32 into) const;
  const StoredTensor& at(const std::string& name) const;
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const StoredTensor*> tensors_;
};

struct NamedTensor {
  std::string name;
  CF32 value;
};
enum class StoreAs : uint8_t { kF32, kBF16, kF16 };

// Sorted by falling width, then name; header padded to 8 bytes; metadata {"format":"pt"} as other programs expect.
// Whole or not at all.
void write_safetensors(const fs::path& path, std::span<const NamedTensor> tensors, StoreAs as = StoreAs::kF32);

}  // namespace isobath
