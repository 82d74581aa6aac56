#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/float_formats.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace isobath {
namespace {

int64_t width(StoreAs as) { return as == StoreAs::kF32 ? 4 : 2; }

const char* dtype_name(StoreAs as) { return as == StoreAs::kF32 ? "F32" : as == StoreAs::kBF16 ? "BF16" : "F16"; }

struct Item {
  const NamedTensor* tensor;
  StoreAs as;
  int64_t bytes() const { return tensor->value.numel() * width(as); }
};

std::vector<Item> sorted_items(std::span<const NamedTensor> tensors, StoreAs as, const std::string& where) {
  std::vector<Item> items;
  for (const NamedTensor& tensor : tensors) {
    const CF32& value = tensor.value;
    require(tensor.name != "__metadata__", "{}: a tensor may not be called __metadata__", where);
    require(value.device == Device::kCpu && (value.data != nullptr || value.numel() == 0),
            "{}: tensor {} {} is not in host memory", where, in_quotes(tensor.name), value.shape);
    items.push_back({&tensor, tensor.as.value_or(as)});
  }
  const auto key = [](const Item& i) { return std::tuple(-width(i.as), i.as, std::string_view(i.tensor->name)); };
  std::sort(items.begin(), items.end(), [&](const Item& a, const Item& b) { return key(a) < key(b); });
  std::vector<std::string_view> names;
  for (const Item& item : items) names.push_back(item.tensor->name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  require(twice == names.end(), "{}: two tensors are called {}", where, in_quotes(twice == names.end() ? "" : *twice));
  return items;
}

std::string json_string(const Item& item, const std::string& where) {
  try {
    return nlohmann::json(item.tensor->name).dump();
  } catch (const nlohmann::json::exception&) {
    fail("{}: the name {} is not UTF-8", where, in_quotes(item.tensor->name));
  }
}

std::string header_for(const std::vector<Item>& items, const std::string& where) {
  std::vector<std::string> entries = {R"("__metadata__":{"format":"pt"})"};
  int64_t begin = 0;
  for (const Item& item : items) {
    const Shape& shape = item.tensor->value.shape;
    std::vector<int64_t> lengths;
    for (int i = 0; i < shape.rank(); i++) lengths.push_back(shape[i]);
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  json_string(item, where), dtype_name(item.as), fmt::join(lengths, ","), begin,
                                  begin + item.bytes()));
    begin += item.bytes();
  }
  std::string text = fmt::format("{{{}}}", fmt::join(entries, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// Rounds and writes in pieces, so that no second copy of a tensor is held.
template <uint16_t (*kNarrow)(float), float (*kWiden)(uint16_t)>
void write_narrow(FileWriter& out, const Item& item, const std::string& where) {
  constexpr int64_t kPiece = 1 << 15;
  std::vector<uint16_t> piece(size_t(std::min(kPiece, item.tensor->value.numel())));
  const float* from = item.tensor->value.data;
  for (int64_t left = item.tensor->value.numel(); left > 0;) {
    const int64_t count = std::min(kPiece, left);
    bool fits = true;
    for (int64_t i = 0; i < count; i++) {
      piece[size_t(i)] = kNarrow(from[i]);
      fits &= std::isinf(kWiden(piece[size_t(i)])) == std::isinf(from[i]);
    }
    require(fits, "{}: tensor {} holds values beyond the range of {}; store it as F32", where,
            in_quotes(item.tensor->name), dtype_name(item.as));
    out.write(piece.data(), size_t(count) * sizeof(uint16_t));
    from += count;
    left -= count;
  }
}

}  // namespace

void write_safetensors(const fs::path& path, std::span<const NamedTensor> tensors, StoreAs as) {
  const std::string where = path.string();
  const std::vector<Item> items = sorted_items(tensors, as, where);
  const std::string header = header_for(items, where);
  const uint64_t length = header.size();
  FileWriter out(path);
  out.write(&length, sizeof length);
  out.write(header);
  for (const Item& item : items) {
    if (item.as == StoreAs::kF32) out.write(item.tensor->value.data, size_t(item.bytes()));
    if (item.as == StoreAs::kBF16) write_narrow<f32_to_bf16, bf16_to_f32>(out, item, where);
    if (item.as == StoreAs::kF16) write_narrow<f32_to_f16, f16_to_f32>(out, item, where);
  }
  out.commit();
}

}  // namespace isobath
