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

int64_t width(const StreamedTensor& t) { return t.dtype == "F32" ? 4 : t.dtype == "I8" ? 1 : 2; }
int64_t bytes(const StreamedTensor& t) { return t.shape.numel() * width(t); }

const char* dtype_name(StoreAs as) { return as == StoreAs::kF32 ? "F32" : as == StoreAs::kBF16 ? "BF16" : "F16"; }

void sort_and_check(std::vector<StreamedTensor>& tensors, const std::string& where) {
  const auto key = [](const StreamedTensor& t) {
    return std::tuple(-width(t), std::string_view(t.dtype), std::string_view(t.name));
  };
  std::sort(tensors.begin(), tensors.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::vector<std::string_view> names;
  for (const StreamedTensor& tensor : tensors) {
    require(tensor.name != "__metadata__", "{}: a tensor may not be called __metadata__", where);
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  require(twice == names.end(), "{}: two tensors are called {}", where, in_quotes(twice == names.end() ? "" : *twice));
}

std::string json_string(const std::string& name, const std::string& where) {
  try {
    return nlohmann::json(name).dump();
  } catch (const nlohmann::json::exception&) {
    fail("{}: the name {} is not UTF-8", where, in_quotes(name));
  }
}

std::string header_for(const std::vector<StreamedTensor>& tensors, const std::string& where) {
  std::vector<std::string> entries = {R"("__metadata__":{"format":"pt"})"};
  int64_t begin = 0;
  for (const StreamedTensor& tensor : tensors) {
    std::vector<int64_t> lengths;
    for (int i = 0; i < tensor.shape.rank(); i++) lengths.push_back(tensor.shape[i]);
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  json_string(tensor.name, where), tensor.dtype, fmt::join(lengths, ","), begin,
                                  begin + bytes(tensor)));
    begin += bytes(tensor);
  }
  std::string text = fmt::format("{{{}}}", fmt::join(entries, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// Rounds and writes in pieces, so that no second copy of a tensor is held.
template <uint16_t (*kNarrow)(float), float (*kWiden)(uint16_t)>
void write_narrow(FileWriter& out, const NamedTensor& tensor, StoreAs as, const std::string& where) {
  constexpr int64_t kPiece = 1 << 15;
  std::vector<uint16_t> piece(size_t(std::min(kPiece, tensor.value.numel())));
  const float* from = tensor.value.data;
  for (int64_t left = tensor.value.numel(); left > 0;) {
    const int64_t count = std::min(kPiece, left);
    bool fits = true;
    for (int64_t i = 0; i < count; i++) {
      piece[size_t(i)] = kNarrow(from[i]);
      fits &= std::isinf(kWiden(piece[size_t(i)])) == std::isinf(from[i]);
    }
    require(fits, "{}: tensor {} holds values beyond the range of {}; store it as F32", where, in_quotes(tensor.name),
            dtype_name(as));
    out.write(piece.data(), size_t(count) * sizeof(uint16_t));
    from += count;
    left -= count;
  }
}

void write_values(FileWriter& out, const NamedTensor& tensor, StoreAs as, const std::string& where) {
  if (as == StoreAs::kF32) out.write(tensor.value.data, size_t(tensor.value.numel()) * sizeof(float));
  if (as == StoreAs::kBF16) write_narrow<f32_to_bf16, bf16_to_f32>(out, tensor, as, where);
  if (as == StoreAs::kF16) write_narrow<f32_to_f16, f16_to_f32>(out, tensor, as, where);
}

}  // namespace

StreamedTensor streamed(const NamedTensor& tensor, StoreAs as, const fs::path& path) {
  const std::string where = path.string();
  const CF32& value = tensor.value;
  require(value.device == Device::kCpu && (value.data != nullptr || value.numel() == 0),
          "{}: tensor {} {} is not in host memory", where, in_quotes(tensor.name), value.shape);
  as = tensor.as.value_or(as);
  return {tensor.name, dtype_name(as), value.shape, [=](FileWriter& out) { write_values(out, tensor, as, where); }};
}

void write_safetensors(const fs::path& path, std::span<const NamedTensor> tensors, StoreAs as) {
  std::vector<StreamedTensor> items;
  for (const NamedTensor& tensor : tensors) items.push_back(streamed(tensor, as, path));
  write_safetensors(path, std::move(items));
}

void write_safetensors(const fs::path& path, std::vector<StreamedTensor> tensors) {
  const std::string where = path.string();
  sort_and_check(tensors, where);
  const std::string header = header_for(tensors, where);
  const uint64_t length = header.size();
  FileWriter out(path);
  out.write(&length, sizeof length);
  out.write(header);
  for (const StreamedTensor& tensor : tensors) tensor.write(out);
  out.commit();
}

}  // namespace isobath
