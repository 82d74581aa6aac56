#include <fmt/ranges.h>

#include <cstring>
#include <set>

#include "base/error.h"
#include "base/float_formats.h"
#include "base/json.h"
#include "base/parallel.h"
#include "checkpoint/safetensors.h"

namespace isobath {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

void copy_bytes(float* into, const std::byte* from, int64_t count) {
  std::memcpy(into, from, size_t(count) * sizeof(float));
}

bool same_shape(const std::vector<int64_t>& stored, const Shape& expected) {
  if (int(stored.size()) != expected.rank()) return false;
  for (int i = 0; i < expected.rank(); i++)
    if (stored[size_t(i)] != expected[i]) return false;
  return true;
}

// {tensor: shard}, each shard a plain file name.
std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  const std::string where = index.string();
  const nlohmann::json root = parse_json(read_file(index), where, JsonForm::kStrict);
  require(root.is_object(), "{}: not a JSON object", where);
  const auto weight_map = root.find("weight_map");
  require(weight_map != root.end() && weight_map->is_object(), "{}: no object \"weight_map\"", where);
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, value] : weight_map->items()) {
    require(value.is_string(), "{}: tensor {} is not mapped to a file name", where, in_quotes(name));
    const auto& shard = value.get_ref<const std::string&>();
    const bool plain = !shard.empty() && shard.find_first_of(std::string_view("/\\\0", 3)) == shard.npos &&
                       shard != "." && shard != "..";
    require(plain, "{}: tensor {} is mapped to {}, expected the name of a file in the same folder", where,
            in_quotes(name), in_quotes(shard));
    shard_of[name] = shard;
  }
  return shard_of;
}

}  // namespace

TensorFolder::TensorFolder(const fs::path& path) : folder_(path) {
  std::error_code ignored;
  require(fs::exists(path, ignored), "{}: no such file or folder", path.string());
  fs::path file = path;
  if (fs::is_directory(path, ignored)) {
    if (!fs::exists(path / kSingle, ignored) && fs::exists(path / kIndex, ignored)) {
      open_shards(path / kIndex);
      return;
    }
    file = path / kSingle;
    require(fs::exists(file, ignored), "{}: no tensors found; looked for {} and {}", path.string(), kSingle, kIndex);
  } else {
    folder_ = path.has_parent_path() ? path.parent_path() : fs::path(".");
  }
  files_.emplace_back(file);
  for (const auto& [name, tensor] : files_.back().tensors()) tensors_[name] = {&tensor, file};
}

void TensorFolder::open_shards(const fs::path& index) {
  const std::map<std::string, std::string> shard_of = read_weight_map(index);
  std::set<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.insert(shard);
  for (const std::string& shard : shards) {
    const fs::path file = folder_ / shard;
    files_.emplace_back(file);
    for (const auto& [name, tensor] : files_.back().tensors()) {
      const auto mapped = shard_of.find(name);
      require(mapped != shard_of.end(), "{}: tensor {} is not named by {}", file.string(), in_quotes(name), kIndex);
      require(mapped->second == shard, "{}: tensor {} is here, but {} maps it to {}", file.string(), in_quotes(name),
              kIndex, in_quotes(mapped->second));
      tensors_[name] = {&tensor, file};
    }
  }
  for (const auto& [name, shard] : shard_of)
    require(has(name), "{}: tensor {} is not in {}, where {} maps it", folder_.string(), in_quotes(name), shard,
            kIndex);
}

std::vector<std::string> TensorFolder::names() const {
  std::vector<std::string> all;
  for (const auto& [name, place] : tensors_) all.push_back(name);
  return all;
}

const TensorFolder::Place& TensorFolder::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  require(at != tensors_.end(), "{}: no tensor {} among its {}", folder_.string(), in_quotes(name), tensors_.size());
  return at->second;
}

const StoredTensor& TensorFolder::at(const std::string& name) const { return *find(name).tensor; }

const TensorFolder::Place& TensorFolder::find(const std::string& name, Shape shape) const {
  const Place& place = find(name);
  require(same_shape(place.tensor->shape, shape), "{}: tensor {} has shape ({}), expected {}", place.file.string(),
          in_quotes(name), fmt::join(place.tensor->shape, ","), shape);
  return place;
}

RawMatrix TensorFolder::matrix(const std::string& name, Shape shape) const {
  const auto& [stored, file] = find(name, shape);
  const std::byte* values = stored->bytes.data();
  if (stored->dtype == "F32") return {RawType::kF32, shape, values, nullptr};
  if (stored->dtype == "BF16") return {RawType::kBf16, shape, values, nullptr};
  if (stored->dtype == "F16") return {RawType::kF16, shape, values, nullptr};
  require(stored->dtype == "I8", "{}: tensor {} is stored as {}, expected F32, BF16, F16 or I8", file.string(),
          in_quotes(name), stored->dtype);
  const auto& [scale, scale_file] = find(name + "_scale", {shape.rows(), (shape.cols() + 31) / 32});
  require(scale->dtype == "BF16", "{}: tensor {} is stored as {}, expected BF16", scale_file.string(),
          in_quotes(name + "_scale"), scale->dtype);
  return {RawType::kInt8, shape, values, scale->bytes.data()};
}

void TensorFolder::read(const std::string& name, F32 into) const {
  require(into.device == Device::kCpu, "{}: tensor {} can be read into host memory only", folder_.string(),
          in_quotes(name));
  const auto& [stored, file] = find(name, into.shape);
  const std::string& dtype = stored->dtype;
  const auto copy = dtype == "F32"    ? copy_bytes
                    : dtype == "BF16" ? widen<bf16_to_f32>
                    : dtype == "F16"  ? widen<f16_to_f32>
                                      : nullptr;
  require(copy != nullptr, "{}: tensor {} is stored as {}, a type that is not read here; expected F32, BF16 or F16",
          file.string(), in_quotes(name), dtype);

  constexpr int64_t kChunk = 1 << 18;  // elements; large tensors are read by all threads
  const int64_t n = into.numel(), width = dtype == "F32" ? 4 : 2;
  parallel_for((n + kChunk - 1) / kChunk, 1, [&](int64_t chunk) {
    const int64_t begin = chunk * kChunk;
    copy(into.data + begin, stored->bytes.data() + begin * width, std::min(kChunk, n - begin));
  });
}

}  // namespace isobath
