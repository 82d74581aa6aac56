#include "checkpoint/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace isobath {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr std::string_view kLfsPointer = "version https://git-lfs";

// Bits per element; 0: no such type.
int64_t dtype_bits(std::string_view dtype) {
  struct Row {
    int64_t bits;
    std::vector<std::string_view> names;
  };
  static const std::vector<Row> rows = {
      {4, {"F4"}},
      {6, {"F6_E2M3", "F6_E3M2"}},
      {8, {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}},
      {16, {"I16", "U16", "F16", "BF16"}},
      {32, {"I32", "U32", "F32"}},
      {64, {"C64", "F64", "I64", "U64"}}};
  for (const Row& row : rows)
    if (std::find(row.names.begin(), row.names.end(), dtype) != row.names.end()) return row.bits;
  return 0;
}

const json& field(const json& info, const char* name, const std::string& what) {
  const auto at = info.find(name);
  require(at != info.end(), "{} has no {}", what, name);
  return *at;
}

std::vector<uint64_t> unsigned_list(const json& info, const char* name, const std::string& what) {
  const json& list = field(info, name, what);
  require(list.is_array(), "{}: {} is not a list", what, name);
  std::vector<uint64_t> numbers;
  for (const json& number : list) {
    require(number.is_number_unsigned(), "{}: {} holds something else than unsigned integers", what, name);
    numbers.push_back(number.get<uint64_t>());
  }
  return numbers;
}

// What the type and the shape take, in whole bytes.
uint64_t expected_bytes(int64_t bits, const std::vector<uint64_t>& shape, const std::string& what) {
  uint64_t total = 1;
  bool overflow = false;
  for (const uint64_t n : shape) overflow |= __builtin_mul_overflow(total, n, &total);
  overflow |= __builtin_mul_overflow(total, uint64_t(bits), &total);
  require(!overflow, "{}: shape ({}) overflows 64 bits", what, fmt::join(shape, ","));
  require(total % 8 == 0, "{}: shape ({}) does not end on a whole byte", what, fmt::join(shape, ","));
  return total / 8;
}

struct Extent {
  uint64_t begin, end;
  std::string name;
};

// One tensor's entry, checked as far as it goes alone; `bytes` is set when all extents are known to be sound.
std::pair<StoredTensor, Extent> parse_tensor(const std::string& name, const json& info, const std::string& path) {
  const std::string what = fmt::format("{}: tensor {}", path, in_quotes(name));
  require(info.is_object(), "{} is not a JSON object", what);
  const json& dtype = field(info, "dtype", what);
  require(dtype.is_string(), "{}: dtype is not a string", what);
  StoredTensor tensor{dtype.get<std::string>(), {}, {}};
  const int64_t bits = dtype_bits(tensor.dtype);
  require(bits > 0, "{}: {} is no dtype of the format", what, in_quotes(tensor.dtype));

  const std::vector<uint64_t> shape = unsigned_list(info, "shape", what);
  const uint64_t bytes = expected_bytes(bits, shape, what);
  for (const uint64_t n : shape) {
    require(n <= uint64_t(INT64_MAX), "{}: dimension {} does not fit 63 bits", what, n);
    tensor.shape.push_back(int64_t(n));
  }
  const std::vector<uint64_t> offsets = unsigned_list(info, "data_offsets", what);
  require(offsets.size() == 2, "{}: data_offsets holds {} numbers, expected 2", what, offsets.size());
  const uint64_t begin = offsets[0], end = offsets[1];
  require(begin <= end, "{}: data_offsets [{},{}] end before they begin", what, begin, end);
  require(end - begin == bytes, "{}: data_offsets [{},{}] hold {} bytes, but {} ({}) takes {}", what, begin, end,
          end - begin, tensor.dtype, fmt::join(shape, ","), bytes);
  return {std::move(tensor), {begin, end, name}};
}

// Every byte of the data belongs to exactly one tensor.
void check_cover(std::vector<Extent>& extents, uint64_t data_bytes, const std::string& path) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t end = 0;
  for (const Extent& next : extents) {
    require(next.begin == end, "{}: tensor {} begins at {} where {} was expected: {}", path, in_quotes(next.name),
            next.begin, end, next.begin > end ? "a hole before it" : "it overlaps another");
    end = next.end;
  }
  require(end <= data_bytes, "{}: cut short: its header describes {} bytes of data, {} are there; copy it again", path,
          end, data_bytes);
  require(end == data_bytes, "{}: {} bytes of data belong to no tensor at its end", path, data_bytes - end);
}

std::map<std::string, std::string> parse_metadata(const json& object, const std::string& path) {
  require(object.is_object(), "{}: __metadata__ is not a JSON object", path);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : object.items()) {
    require(value.is_string(), "{}: __metadata__ {} is not a string", path, in_quotes(key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// The JSON text between the length and the data.
std::string_view header_text(std::span<const std::byte> file, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  require(!text.starts_with(kLfsPointer), "{}: a Git LFS pointer, not the tensors; fetch them with `git lfs pull`",
          path);
  require(file.size() >= 8, "{}: {} bytes, a safetensors file has at least 8", path, file.size());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  require(length <= kMaxHeader, "{}: header of {} bytes, at most {} are allowed; not a safetensors file?", path, length,
          kMaxHeader);
  require(length <= file.size() - 8, "{}: header of {} bytes in a file of {}; cut short?", path, length, file.size());
  return text.substr(8, length);
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "the format's numbers are read and written as they lie");

SafetensorsTable parse_safetensors(std::span<const std::byte> file, const fs::path& path) {
  const std::string where = path.string();
  const std::string_view text = header_text(file, where);
  const std::span<const std::byte> data = file.subspan(8 + text.size());
  const json header = parse_json(text, where + ": header", JsonForm::kStrict);
  require(header.is_object(), "{}: header is not a JSON object", where);

  SafetensorsTable table;
  std::vector<Extent> extents;
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__") {
      table.metadata = parse_metadata(info, where);
      continue;
    }
    auto [tensor, extent] = parse_tensor(name, info, where);
    table.tensors.emplace(name, std::move(tensor));
    extents.push_back(std::move(extent));
  }
  check_cover(extents, data.size(), where);
  for (const Extent& e : extents) table.tensors.at(e.name).bytes = data.subspan(e.begin, e.end - e.begin);
  return table;
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path), table_(parse_safetensors(file_.bytes(), path)) {}

}  // namespace isobath
