#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "support/mutate.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace isobath {
namespace {

using testing::mutate;
using testing::TempDir;

std::string file_bytes(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

// The message of the refusal, or "" for a file that is accepted.
std::string refusal(const std::string& file) {
  try {
    parse_safetensors(std::as_bytes(std::span(file)), "weights/a.safetensors");
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::kInput);
    EXPECT_TRUE(std::string_view(e.what()).starts_with("weights/a.safetensors: ")) << e.what();
    EXPECT_EQ(std::string_view(e.what()).find('\n'), std::string_view::npos) << e.what();
    return e.what();
  }
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, refuses_and_names_the_rule) {
  const std::string f32 = tensor("a", "F32", "[1]", "[0,4]");
  const struct {
    const char* rule;
    std::string file;
  } cases[] = {
      {"0 bytes, a safetensors file has at least 8", ""},
      {"Git LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"},
      {"at most 100000000", std::string(16, '\xff')},
      {"header of 3 bytes in a file of 10", file_bytes("{}").replace(0, 1, 1, '\3')},
      {"not UTF-8 JSON: wrong at byte 1", file_bytes("")},
      {"not UTF-8 JSON", file_bytes("{} x")},
      {"not UTF-8 JSON", file_bytes("{\"\xff\":1}")},
      {"not UTF-8 JSON", file_bytes("{} \xff")},
      {"not UTF-8 JSON", file_bytes("{}/* comment */")},
      {"NUL byte at 2", file_bytes(std::string("{}\0\0", 4))},
      {"byte order mark", file_bytes("\xEF\xBB\xBF{}")},
      {"header is not a JSON object", file_bytes("[]")},
      {"header is not a JSON object", file_bytes("null")},
      {"__metadata__ is not a JSON object", file_bytes(R"({"__metadata__":null})")},
      {"__metadata__ \"x\" is not a string", file_bytes(R"({"__metadata__":{"x":1}})")},
      {"key \"__metadata__\" twice", file_bytes(R"({"__metadata__":{},"__metadata__":{}})")},
      {"key \"x\" twice", file_bytes(R"({"__metadata__":{"x":"1","x":"2"}})")},
      {"key \"a\" twice", file_bytes("{" + f32 + "," + f32 + "}", "1234")},
      {"key \"a\" twice", file_bytes("{" + f32 + "," + tensor("\\u0061", "F32", "[1]", "[0,4]") + "}", "1234")},
      {"key \"dtype\" twice", file_bytes(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})")},
      {"tensor \"a\" is not a JSON object", file_bytes(R"({"a":[]})")},
      {"has no dtype", file_bytes(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "1234")},
      {"has no shape", file_bytes(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "1234")},
      {"has no data_offsets", file_bytes(R"({"a":{"dtype":"F32","shape":[1]}})", "1234")},
      {"dtype is not a string", file_bytes(R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})", "1234")},
      {"\"f32\" is no dtype", file_bytes("{" + tensor("a", "f32", "[1]", "[0,4]") + "}", "1234")},
      {"shape is not a list", file_bytes("{" + tensor("a", "F32", "1", "[0,4]") + "}", "1234")},
      {"something else than unsigned", file_bytes("{" + tensor("a", "F32", "[1.0]", "[0,4]") + "}", "1234")},
      {"something else than unsigned", file_bytes("{" + tensor("a", "F32", "[1e0]", "[0,4]") + "}", "1234")},
      {"something else than unsigned", file_bytes("{" + tensor("a", "F32", "[-1]", "[0,4]") + "}", "1234")},
      {"something else than unsigned", file_bytes("{" + tensor("a", "F32", "[1]", "[-0,4]") + "}", "1234")},
      {"something else than unsigned",
       file_bytes("{" + tensor("a", "F32", "[1]", "[0,18446744073709551616]") + "}", "1234")},
      {"holds 3 numbers, expected 2", file_bytes("{" + tensor("a", "F32", "[1]", "[0,4,4]") + "}", "1234")},
      {"shape (4294967296,4294967296) overflows",
       file_bytes("{" + tensor("a", "U8", "[4294967296,4294967296]", "[0,0]") + "}")},
      {"shape (4611686018427387904) overflows",  // 2^62 elements fit, their bits do not
       file_bytes("{" + tensor("a", "U8", "[4611686018427387904]", "[0,4611686018427387904]") + "}")},
      {"dimension 18446744073709551615 does not fit",
       file_bytes("{" + tensor("a", "U8", "[0,18446744073709551615]", "[0,0]") + "}")},
      {"whole byte", file_bytes("{" + tensor("a", "F4", "[3]", "[0,2]") + "}", "12")},
      {"end before they begin", file_bytes("{" + tensor("a", "F32", "[1]", "[4,0]") + "}", "1234")},
      {"hold 4 bytes, but F32 (2) takes 8", file_bytes("{" + tensor("a", "F32", "[2]", "[0,4]") + "}", "1234")},
      {"tensor \"a\" begins at 1 where 0 was expected: a hole",
       file_bytes("{" + tensor("a", "F32", "[1]", "[1,5]") + "}", "01234")},
      {"tensor \"b\" begins at 2 where 4 was expected: it overlaps",
       file_bytes("{" + f32 + "," + tensor("b", "F32", "[1]", "[2,6]") + "}", "123456")},
      {"tensor \"b\" begins at 0 where 4",
       file_bytes("{" + f32 + "," + tensor("b", "F32", "[1]", "[0,4]") + "}", "1234")},
      {"describes 4 bytes of data, 3 are there", file_bytes("{" + f32 + "}", "123")},
      {"2 bytes of data belong to no tensor", file_bytes("{" + f32 + "}", "123456")},
      {"beyond the range of float64",
       file_bytes(R"({"a":{"x":1e999,"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234")},
      {"nests deeper than 128", file_bytes(R"({"a":{"x":)" + std::string(127, '[') + std::string(127, ']') + "}}")},
  };
  for (const auto& [rule, file] : cases)
    EXPECT_NE(refusal(file).find(rule), std::string::npos) << rule << " / " << refusal(file);
}

TEST(Safetensors, accepts_what_the_format_allows) {
  const std::string tail = R"(,"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  for (const std::string& file : {
           file_bytes("{}"),
           file_bytes(" \t\r\n{} \t\r\n"),
           file_bytes(R"({"__metadata__":{}})"),
           file_bytes("{" + tensor("", "F32", "[]", "[0,4]") + "}", "1234"),
           file_bytes("{" + tensor("a", "U8", "[0,9223372036854775807]", "[0,0]") + "}"),
           file_bytes("{" + tensor("a", "F6_E2M3", "[4]", "[0,3]") + "}", "123"),
           file_bytes("{" + tensor("a", "C64", "[1,1,1,1,1,1]", "[0,8]") + "}", "12345678"),
           file_bytes(R"({"a":{"x":{"y":[null,true,-1.5e3,"z"]})" + tail, "1234"),
           file_bytes(R"({"a":{"x":)" + std::string(126, '[') + std::string(126, ']') + tail, "1234"),
           // Empty tensors share their place with the neighbours.
           file_bytes("{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[0]", "[4,4]") + "," +
                          tensor("c", "F32", "[0,2]", "[0,0]") + "}",
                      "1234"),
       })
    EXPECT_EQ(refusal(file), "");
}

TEST(Safetensors, tables_point_into_the_file) {
  const std::string file =
      file_bytes(R"({"__metadata__":{"format":"pt","k\n":"v"},)" + tensor("b", "U8", "[3]", "[1,4]") + "," +
                     tensor("a\\u00e9\\/", "I8", "[1,1]", "[0,1]") + "}",
                 "xyzw");
  const SafetensorsTable table = parse_safetensors(std::as_bytes(std::span(file)), "f");
  ASSERT_EQ(table.tensors.size(), 2u);
  const StoredTensor& b = table.tensors.at("b");
  EXPECT_EQ(b.dtype, "U8");
  EXPECT_EQ(b.shape, std::vector<int64_t>{3});
  EXPECT_EQ(std::memcmp(b.bytes.data(), "yzw", 3), 0);
  EXPECT_EQ(b.bytes.size(), 3u);
  EXPECT_EQ(table.tensors.at("a\u00e9/").shape, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(table.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"k\n", "v"}}));
}

TEST(Safetensors, long_and_wild_names_stay_on_one_short_line) {
  const std::string name = "\\n\\u0007" + std::string(100000, 'x');
  const std::string message = refusal(file_bytes("{" + tensor(name, "F32", "[1]", "[1,5]") + "}", "12345"));
  EXPECT_NE(message.find("tensor \"\\n\\u0007xxx"), std::string::npos);
  EXPECT_LT(message.size(), 300u);
}

TEST(Safetensors, other_peoples_fixtures) {
  ISOBATH_NEEDS_DATA(path, "safetensors");
  const std::map<std::string, bool> policy = {{"either/leading_ws_header.safetensors", true},
                                              {"either/unknown_field.safetensors", true},
                                              {"either/empty_name.safetensors", true},
                                              {"either/duplicate_name.safetensors", false},
                                              {"either/duplicate_name_by_escape.safetensors", false},
                                              {"either/deep_nesting_unknown_field.safetensors", false}};
  int seen = 0;
  for (const auto& entry : nlohmann::json::parse(read_file(path / "manifest.json"))) {
    const std::string name = entry["file"], expect = entry["expect"];
    const bool accept = expect == "policy" ? policy.at(name) : expect == "accept";
    seen++;
    try {
      const SafetensorsFile file(path / name);
      EXPECT_TRUE(accept) << name << " should be refused: " << entry["why"];
    } catch (const Error& e) {
      EXPECT_FALSE(accept) << e.what();
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(seen, 45);
}

TEST(Safetensors, missing_file_and_folder_are_named) {
  const TempDir dir;
  for (const fs::path& path : {dir / "none.safetensors", dir.path()}) {
    try {
      const SafetensorsFile file(path);
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(path.string()), std::string::npos) << e.what();
    }
  }
}

TEST(Safetensors, damaged_files_are_refused_or_stay_inside) {
  const std::string whole =
      file_bytes(R"({"__metadata__":{"format":"pt"},)" + tensor("a", "F32", "[2,1]", "[0,8]") + "," +
                     tensor("b", "BF16", "[3]", "[8,14]") + "," + tensor("c", "F4", "[2]", "[14,15]") + "}",
                 "0123456789abcde");
  ASSERT_EQ(refusal(whole), "");
  int accepted = 0;
  for (uint64_t seed = 0; seed < 20000; seed++) {
    const std::string file = mutate(whole, seed);
    try {
      size_t covered = 0;
      const SafetensorsTable table = parse_safetensors(std::as_bytes(std::span(file)), "f");
      for (const auto& [name, t] : table.tensors) {
        const auto* at = reinterpret_cast<const char*>(t.bytes.data());
        ASSERT_TRUE(at >= file.data() && at + t.bytes.size() <= file.data() + file.size()) << seed;
        covered += t.bytes.size();
      }
      ASSERT_LE(covered, file.size()) << seed;
      accepted++;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, 100);    // damage to the values or to a name leaves a sound file
  EXPECT_LT(accepted, 10000);  // most damage is seen
}

TEST(Safetensors, every_cut_is_refused) {
  const std::string whole = file_bytes("{" + tensor("a", "F32", "[2]", "[0,8]") + "}", "01234567");
  for (size_t size = 0; size < whole.size(); size++) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
}

TEST(StrictJson, wide_headers_cost_no_more_than_their_length) {
  std::string text = "{";
  for (int i = 0; i < 100000; i++) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":{\"x\":[]}";
  EXPECT_EQ(parse_json(text + "}", "text", JsonForm::kStrict).size(), 100000u);
}

}  // namespace
}  // namespace isobath
