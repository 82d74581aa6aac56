// The writer and the reading of whole folders: what is written comes back, and a broken index is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/float_formats.h"
#include "base/parallel.h"
#include "checkpoint/safetensors.h"
#include "support/compare.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace isobath {
namespace {

using testing::Buffer;
using testing::expect_same_bits;
using testing::random_buffer;
using testing::TempDir;

template <class F>
std::string error_of(F f) {
  try {
    f();
    return "no error";
  } catch (const Error& e) {
    return e.what();
  }
}

#define EXPECT_ERROR(expression, part)                                                  \
  do {                                                                                  \
    const std::string message = error_of([&] { static_cast<void>(expression); });       \
    EXPECT_NE(message.find(part), std::string::npos) << message << "\n want: " << part; \
  } while (false)

std::string header_of(const fs::path& path) {
  const std::string bytes = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  EXPECT_EQ(length % 8, 0u);
  return bytes.substr(8, length);
}

TEST(WriteSafetensors, float32_comes_back_to_the_bit) {
  const TempDir dir;
  const Buffer a = random_buffer({3, 5}, 1), b = random_buffer({1}, 2), c = random_buffer({}, 3), none({0, 7}),
               wide = random_buffer({2, 1, 3, 2}, 4);
  const std::vector<NamedTensor> tensors = {{"b", b}, {"wide", wide}, {"a \"\u00e9\n", a}, {"none", none}, {"c", c}};
  write_safetensors(dir / "model.safetensors", tensors);
  EXPECT_FALSE(fs::exists(dir / "model.safetensors.part"));

  const TensorFolder folder(dir.path());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a \"\u00e9\n", "b", "c", "none", "wide"}));
  for (const NamedTensor& t : tensors) {
    Buffer got(t.value.shape);
    folder.read(t.name, got);
    expect_same_bits(got.values.data(), t.value.data, t.value.numel(), t.name.c_str());
  }
  EXPECT_EQ(SafetensorsFile(dir / "model.safetensors").metadata().at("format"), "pt");
}

TEST(WriteSafetensors, header_is_sorted_by_width_then_name_and_padded) {
  const TempDir dir;
  const Buffer one = random_buffer({1}, 1), two = random_buffer({2}, 2);
  const std::vector<NamedTensor> tensors = {{"z", one}, {"m", two}, {"router", one, StoreAs::kF32}, {"a", one}};
  write_safetensors(dir / "x.safetensors", tensors, StoreAs::kBF16);
  std::string header = header_of(dir / "x.safetensors");
  header.erase(header.find_last_not_of(' ') + 1);
  EXPECT_EQ(header, R"({"__metadata__":{"format":"pt"},"router":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                    R"("a":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]},"m":{"dtype":"BF16","shape":[2],)"
                    R"("data_offsets":[6,10]},"z":{"dtype":"BF16","shape":[1],"data_offsets":[10,12]}})");
}

TEST(WriteSafetensors, narrow_formats_round_to_nearest_even) {
  const TempDir dir;
  const Buffer x = random_buffer({129, 1025}, 5);  // longer than a piece
  for (const StoreAs as : {StoreAs::kBF16, StoreAs::kF16}) {
    const NamedTensor tensors[] = {{"x", x}};
    write_safetensors(dir / "x.safetensors", tensors, as);
    const TensorFolder file(dir / "x.safetensors");
    EXPECT_EQ(file.at("x").dtype, as == StoreAs::kBF16 ? "BF16" : "F16");
    for (const int threads : {1, 2}) {
      set_thread_count(threads);
      Buffer got(x.shape), want(x.shape);
      file.read("x", got);
      for (int64_t i = 0; i < x.shape.numel(); i++)
        want[i] = as == StoreAs::kBF16 ? bf16_to_f32(f32_to_bf16(x[i])) : f16_to_f32(f32_to_f16(x[i]));
      expect_same_bits(got, want);
    }
  }
}

TEST(WriteSafetensors, non_finite_values_are_kept_and_overflow_is_refused) {
  const TempDir dir;
  const float inf = std::numeric_limits<float>::infinity();
  Buffer x({4}, 0);
  x.values = {inf, -inf, std::nanf(""), 1};
  const NamedTensor tensors[] = {{"x", x}};
  for (const StoreAs as : {StoreAs::kF32, StoreAs::kBF16, StoreAs::kF16}) {
    write_safetensors(dir / "x.safetensors", tensors, as);
    Buffer got({4});
    TensorFolder(dir / "x.safetensors").read("x", got);
    EXPECT_TRUE(got[0] == inf && got[1] == -inf && std::isnan(got[2]) && got[3] == 1) << int(as);
  }
  const std::string before = read_file(dir / "x.safetensors");
  x[3] = 65520;  // rounds to 2^16
  EXPECT_ERROR(write_safetensors(dir / "x.safetensors", tensors, StoreAs::kF16), "beyond the range of F16");
  EXPECT_EQ(read_file(dir / "x.safetensors"), before);
  EXPECT_FALSE(fs::exists(dir / "x.safetensors.part"));
  x[3] = std::numeric_limits<float>::max();
  EXPECT_ERROR(write_safetensors(dir / "x.safetensors", tensors, StoreAs::kBF16), "beyond the range of BF16");
}

TEST(WriteSafetensors, refuses_names_that_no_reader_would_take) {
  const TempDir dir;
  const Buffer x = random_buffer({1}, 1);
  const auto write = [&](std::vector<NamedTensor> tensors) { write_safetensors(dir / "x.safetensors", tensors); };
  EXPECT_ERROR(write({{"a", x}, {"b", x}, {"a", x, StoreAs::kF16}}), "two tensors are called \"a\"");
  EXPECT_ERROR(write({{"__metadata__", x}}), "__metadata__");
  EXPECT_ERROR(write({{"\xff", x}}), "not UTF-8");
  EXPECT_ERROR(write({{"a", CF32{nullptr, {1}}}}), "not in host memory");
  EXPECT_TRUE(fs::is_empty(dir.path()));
  write({});
  EXPECT_TRUE(TensorFolder(dir / "x.safetensors").names().empty());
}

TEST(TensorFolder, refusals_say_what_is_there_and_what_was_expected) {
  const TempDir dir;
  const Buffer x = random_buffer({2, 3}, 1);
  const NamedTensor tensors[] = {{"x", x}};
  write_safetensors(dir / "model.safetensors", tensors);
  const TensorFolder folder(dir.path());
  Buffer wrong({3, 2}), flat({6}), right({2, 3});
  EXPECT_ERROR(folder.read("x", wrong), "has shape (2,3), expected (3,2)");
  EXPECT_ERROR(folder.read("x", flat), "has shape (2,3), expected (6)");
  EXPECT_ERROR(folder.read("y", right), "no tensor \"y\" among its 1");
  EXPECT_ERROR(folder.at("y"), dir.path().string());
  EXPECT_TRUE(std::isnan(right[0]) && std::isnan(wrong[0]));
  EXPECT_ERROR(TensorFolder(dir / "none"), "no such file or folder");
  fs::create_directory(dir / "empty");
  EXPECT_ERROR(TensorFolder(dir / "empty"), "looked for model.safetensors and model.safetensors.index.json");

  const std::string header = R"({"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  std::string bytes(8, '\0');
  bytes[0] = char(header.size());
  Buffer one({1});
  const TensorFolder other(dir.write("i.safetensors", bytes + header + "12345678"));
  EXPECT_ERROR(other.read("i", one), "stored as I64, a type that is not read here; expected F32, BF16 or F16");
}

class Sharded : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::vector<NamedTensor>& tensors) const {
    write_safetensors(dir_ / file, tensors);
  }
  void index(const std::string& text) const { dir_.write("model.safetensors.index.json", text); }
  void SetUp() override {
    write("model-00001-of-00002.safetensors", {{"a", a_}});
    write("model-00002-of-00002.safetensors", {{"b", b_}, {"c", a_}});
  }
  TempDir dir_;
  Buffer a_ = random_buffer({2}, 1), b_ = random_buffer({3, 1}, 2);
};

TEST_F(Sharded, shards_are_one_folder) {
  index(R"({"metadata":{"total_size":28,"writer":"x"},"weight_map":{"a":"model-00001-of-00002.safetensors",
            "b":"model-00002-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}})");
  TensorFolder opened(dir_.path());
  const TensorFolder folder = std::move(opened);  // the tensors it points to move along
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b", "c"}));
  Buffer got({3, 1});
  folder.read("b", got);
  expect_same_bits(got, b_);
  write("model.safetensors", {{"single", a_}});
  EXPECT_EQ(TensorFolder(dir_.path()).names(), std::vector<std::string>{"single"});
}

TEST_F(Sharded, broken_indexes_are_refused) {
  const auto map = [&](const std::string& entries) { index(R"({"weight_map":{)" + entries + "}}"); };
  const std::string a = R"("a":"model-00001-of-00002.safetensors")", b = R"("b":"model-00002-of-00002.safetensors")",
                    c = R"("c":"model-00002-of-00002.safetensors")";
  const auto open = [&] { return TensorFolder(dir_.path()); };
  map(a + "," + b + "," + c + R"(,"d":"model-00001-of-00002.safetensors")");
  EXPECT_ERROR(open(), "tensor \"d\" is not in model-00001-of-00002.safetensors");
  map(a + "," + b);
  EXPECT_ERROR(open(), "tensor \"c\" is not named by model.safetensors.index.json");
  map(a + "," + b + R"(,"c":"model-00001-of-00002.safetensors")");
  EXPECT_ERROR(open(), "maps it to \"model-00001-of-00002.safetensors\"");
  map(a + R"(,"b":"model-00003-of-00002.safetensors")");
  EXPECT_ERROR(open(), "model-00003-of-00002.safetensors: No such file");
  map(a + "," + a);
  EXPECT_ERROR(open(), "key \"a\" twice");
  for (const char* shard : {"../x", "/etc/x", "", ".", "..", "a\\\\b", "a\\u0000b"}) {
    map(std::string(R"("a":")") + shard + "\"");
    EXPECT_ERROR(open(), "expected the name of a file in the same folder");
  }
  map(R"("a":1)");
  EXPECT_ERROR(open(), "not mapped to a file name");
  index("{}");
  EXPECT_ERROR(open(), "no object \"weight_map\"");
  index("[");
  EXPECT_ERROR(open(), "index.json is not UTF-8 JSON");
  map(a + "," + b + "," + c);
  write("model-00001-of-00002.safetensors", {{"a", a_}, {"b", b_}});
  EXPECT_ERROR(open(), "tensor \"b\" is here, but");
}

TEST(TensorFolder, reads_a_pretrained_model) {
  ISOBATH_NEEDS_DATA(path, "models/stories260K-hf");
  const TensorFolder folder(path);
  EXPECT_EQ(folder.names().size(), 47u);
  Buffer embedding({512, 64});
  folder.read("model.embed_tokens.weight", embedding);
  for (const float v : embedding.values) ASSERT_LT(std::abs(v), 10);
}

TEST(FloatFormats, every_16_bit_pattern_survives_the_round_trip) {
  for (uint32_t h = 0; h < 65536; h++) {
    const bool bf16_nan = (h & 0x7fffu) > 0x7f80u, f16_nan = (h & 0x7fffu) > 0x7c00u;
    const uint16_t bf16 = f32_to_bf16(bf16_to_f32(uint16_t(h))), f16 = f32_to_f16(f16_to_f32(uint16_t(h)));
    ASSERT_EQ(bf16, bf16_nan ? h | 0x40u : h);  // NaNs become quiet
    ASSERT_EQ(f16, f16_nan ? h | 0x200u : h);
  }
}

// The definition: sign, exponent, fraction.
double value_of_f16(uint32_t h) {
  const double sign = h & 0x8000u ? -1 : 1;
  const int exponent = int(h >> 10 & 31), fraction = int(h & 1023);
  if (exponent == 31) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(FloatFormats, f16_widens_by_its_definition) {
  for (uint32_t h = 0; h < 65536; h++) {
    const double want = value_of_f16(h), got = f16_to_f32(uint16_t(h));
    ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : want == got && std::signbit(want) == std::signbit(got)) << h;
  }
}

// Between neighbours: the middle goes to the even one, a hair to either side to the nearer one.
TEST(FloatFormats, narrowing_rounds_to_nearest_even) {
  const auto check = [](auto narrow, auto widen, uint32_t largest) {
    for (uint32_t h = 0; h < largest; h++) {
      const float low = widen(uint16_t(h)), high = widen(uint16_t(h + 1));
      const float middle = float((double(low) + double(high)) / 2);
      ASSERT_EQ(double(middle) * 2, double(low) + double(high)) << h;
      const uint32_t even = h % 2 == 0 ? h : h + 1;
      ASSERT_EQ(narrow(middle), even) << h;
      ASSERT_EQ(narrow(-middle), even | 0x8000u) << h;
      ASSERT_EQ(narrow(std::nextafterf(middle, low)), h) << h;
      ASSERT_EQ(narrow(std::nextafterf(middle, high)), h + 1) << h;
    }
  };
  check(f32_to_f16, f16_to_f32, 0x7bffu);
  check(f32_to_bf16, bf16_to_f32, 0x7f7fu);
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bffu);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00u);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0u);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0u);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80u);
}

}  // namespace
}  // namespace isobath
