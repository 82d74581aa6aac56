// Safetensors files: a strict reader and a writer. Moves named tensors; knows no model.
// Format: u64 little-endian header length, JSON header, bytes (huggingface/safetensors, README "Format").
// Reading is by memory map: opening is immediate, tensors are copied where they are wanted.
//
// Where the format leaves a choice: whitespace before the header, an empty tensor name and unknown fields of a tensor
// are accepted; a key that appears twice in one JSON object (also after unescaping) and nesting deeper than 128 are
// refused. Dimensions and offsets are plain digits: 1e2, 2.0 and -0 are refused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/raw_matrix.h"
#include "tensor/view.h"

namespace isobath {

struct StoredTensor {
  std::string dtype;                 // "F32", "BF16", "F16", "I64", ...
  std::vector<int64_t> shape;        // any rank
  std::span<const std::byte> bytes;  // may be unaligned
};

struct SafetensorsTable {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// The tables of a file that lies in memory; the tensors point into `file`. Throws Error naming `path` and the rule the
// file breaks, for every file that a strict reader should refuse. Never reads outside `file`.
SafetensorsTable parse_safetensors(std::span<const std::byte> file, const fs::path& path);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);  // throws as parse_safetensors and MappedFile do
  const std::map<std::string, StoredTensor>& tensors() const { return table_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return table_.metadata; }
  const fs::path& path() const { return file_.path(); }

 private:
  MappedFile file_;
  SafetensorsTable table_;
};

// All tensors of a folder: model.safetensors, or else the shards that model.safetensors.index.json names. The path of
// one .safetensors file opens that file alone.
// The index is strict too: every name is in the shard it is mapped to, every tensor of a shard is mapped to that shard,
// and shards lie in the folder itself.
class TensorFolder {
 public:
  explicit TensorFolder(const fs::path& path);
  bool has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::string> names() const;  // sorted
  // Copies to float32 from F32, BF16 or F16, exactly. Throws Error if it is missing, of another type, or of another
  // shape. Cost: reads the stored bytes once; memory bound.
  void read(const std::string& name, F32 into) const;
  const StoredTensor& at(const std::string& name) const;  // throws Error if it is missing
  // A matrix where it lies, of F32, BF16, F16, or I8 with the groups' scales in the BF16 tensor NAME_scale
  // (ops/frozen_linear.h). Throws Error as read() does. Valid while the folder lives.
  RawMatrix matrix(const std::string& name, Shape shape) const;
  const fs::path& folder() const { return folder_; }

 private:
  struct Place {
    const StoredTensor* tensor;  // in a map of files_, whose nodes stay where they are when files_ is moved
    fs::path file;
  };
  const Place& find(const std::string& name) const;
  const Place& find(const std::string& name, Shape shape) const;
  void open_shards(const fs::path& index);
  fs::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> tensors_;
};

enum class StoreAs : uint8_t { kF32, kBF16, kF16 };
struct NamedTensor {
  std::string name;
  CF32 value;
  std::optional<StoreAs> as = std::nullopt;  // where it differs from the rest of the file: routers stay F32
};

// A tensor whose bytes are made while the file is written: write() gives out.write() bytes_per_value times the shape.
struct StreamedTensor {
  std::string name, dtype;  // "F32", "BF16", "F16" or "I8"
  Shape shape;
  std::function<void(FileWriter& out)> write;
};

// A tensor in memory as one of these; `path` is for messages, value must live until it is written.
StreamedTensor streamed(const NamedTensor& tensor, StoreAs as, const fs::path& path);

// Sorted by falling width, then dtype and name; header padded to 8 bytes; metadata {"format":"pt"} as other programs
// expect. Narrow formats round to nearest, ties to even; a finite value beyond the format's range is an Error. Whole or
// not at all (FileWriter); holds no copy of the tensors.
void write_safetensors(const fs::path& path, std::span<const NamedTensor> tensors, StoreAs as = StoreAs::kF32);
void write_safetensors(const fs::path& path, std::vector<StreamedTensor> tensors);

}  // namespace isobath
