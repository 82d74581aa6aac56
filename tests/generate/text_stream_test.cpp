#include "generate/text_stream.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace isobath {
namespace {

std::vector<std::string> pieces(TextStream& stream, std::string_view bytes) {
  std::vector<std::string> all;
  for (const char byte : bytes) all.emplace_back(stream.push(uint8_t(byte)));
  return all;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(TextStream, WithoutStopStringsNothingIsHeldBack) {
  TextStream stream(Tokenizer::bytes(), {}, {});
  EXPECT_EQ(pieces(stream, "abc"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, CharactersComeWhole) {
  TextStream stream(Tokenizer::bytes(), {}, {});
  EXPECT_EQ(pieces(stream, "\xC3\xA9\xE2\x82\xACx"),
            (std::vector<std::string>{"", "\xC3\xA9", "", "", "\xE2\x82\xAC", "x"}));
  EXPECT_EQ(pieces(stream, "\xE2\x82"), (std::vector<std::string>{"", ""}));
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(TextStream, BeginningOfAStopStringWaitsAndComesOutWhenItWasNone) {
  TextStream stream(Tokenizer::bytes(), {}, {"ENDING"});
  EXPECT_EQ(pieces(stream, "aENx"), (std::vector<std::string>{"a", "", "", "ENx"}));
  EXPECT_EQ(pieces(stream, "bEND"), (std::vector<std::string>{"b", "", "", ""}));
  EXPECT_EQ(stream.finish(), "END");
  EXPECT_FALSE(stream.stopped());
}

TEST(TextStream, StopStringAcrossTokensIsFoundAndNothingOfItShown) {
  TextStream stream(Tokenizer::bytes(), {}, {"\n\n", "aab"});
  EXPECT_EQ(joined(pieces(stream, "xaaaab and more")), "xaa");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, EarliestStopStringCounts) {
  const std::vector<std::vector<std::string>> orders{{"cd", "bcd"}, {"bcd", "cd"}};
  for (const auto& stop : orders) {
    TextStream stream(Tokenizer::bytes(), {}, stop);
    EXPECT_EQ(joined(pieces(stream, "abcd")), "a");
    EXPECT_TRUE(stream.stopped());
  }
}

TEST(TextStream, PromptBelongsToTheTextButIsNotShown) {
  const std::vector<int32_t> prompt{'q', 0xC3};  // ends in the middle of a character
  TextStream stream(Tokenizer::bytes(), prompt, {});
  EXPECT_EQ(joined(pieces(stream, "\xA9!")), "\xC3\xA9!");
}

TEST(TextStream, EmptyStopStringIsRefused) { EXPECT_THROW(TextStream(Tokenizer::bytes(), {}, {"a", ""}), Error); }

}  // namespace
}  // namespace isobath
