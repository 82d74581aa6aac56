#include "base/json.h"

#include <gtest/gtest.h>

#include "support/refusal.h"

namespace isobath {
namespace {

using testing::refusal;

std::string refused(const std::string& text, JsonForm form = JsonForm::kLenient) {
  return refusal([&] { parse_json(text, "it", form); });
}
std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ParseJson, nests_to_a_depth_that_recursion_bears) {
  EXPECT_EQ(refused(nested(128)), "(accepted)");
  EXPECT_EQ(refused(nested(129)), "it nests deeper than 128");
  EXPECT_EQ(refused(nested(1'000'000)), "it nests deeper than 128");
  std::string objects;
  for (int i = 0; i < 200'000; i++) objects += "{\"a\":";
  EXPECT_EQ(refused(objects), "it nests deeper than 128");
}

TEST(ParseJson, says_where_it_is_wrong) {
  EXPECT_EQ(refused("{\n \"a\": 1,\n b}"), "it is not UTF-8 JSON: wrong at byte 13 (line 3)");
  EXPECT_EQ(refused(""), "it is not UTF-8 JSON: wrong at byte 1 (line 1)");
  EXPECT_EQ(refused(std::string("{}\0", 3)), "it holds a NUL byte at 2; JSON is padded with spaces");
}

TEST(ParseJson, is_strict_where_it_is_asked) {
  const std::string twice = R"({"a": {"b": 1}, "a": [2]})", mark = "\xEF\xBB\xBF{}";
  EXPECT_EQ(parse_json(twice, "it"), nlohmann::json::parse(twice));
  EXPECT_EQ(parse_json(mark, "it"), nlohmann::json::object());
  EXPECT_NE(refused(twice, JsonForm::kStrict), "(accepted)");
  EXPECT_NE(refused(mark, JsonForm::kStrict), "(accepted)");
}

}  // namespace
}  // namespace isobath
