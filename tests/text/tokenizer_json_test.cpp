// Small tokenizers made here: each part of the format alone.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/temp_dir.h"
#include "text/tokenizer.h"

namespace isobath {
namespace {

using testing::TempDir;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

// a b c d ▁ and what merges make of them; ▁ stands for a blank that is made visible.
Json small() {
  return Json::parse(R"({
    "added_tokens": [{"id": 20, "content": "<s>", "special": true}, {"id": 21, "content": "</s>", "special": true},
                     {"id": 22, "content": "<s>x", "special": false, "normalized": false}],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "pre_tokenizer": null,
    "post_processor": null,
    "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "byte_fallback": false, "fuse_unk": false,
              "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "▁": 4, "ab": 5, "bc": 6, "abc": 7, "▁a": 8, "cd": 9,
                        "<unk>": 10, "<0xC3>": 11, "<0xA9>": 12, "é": 13},
              "merges": ["b c", "a b", ["a", "bc"], "▁ a", "c d"]}})");
}

Tokenizer load(const Json& json, const Json& config = nullptr) {
  const TempDir dir;
  if (!config.is_null()) dir.write("tokenizer_config.json", config.dump());
  dir.write("tokenizer.json", json.dump());
  return Tokenizer::load(dir.path());
}
std::string refusal(const Json& json) {
  try {
    load(json);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(TokenizerJson, MergesByRankThenFromTheLeft) {
  const Tokenizer t = load(small());
  EXPECT_EQ(t.encode("abc"), (Ids{7}));  // bc before ab
  EXPECT_EQ(t.encode("abd"), (Ids{5, 3}));
  EXPECT_EQ(t.encode("abab"), (Ids{5, 5}));
  EXPECT_EQ(t.encode("bcd"), (Ids{6, 3}));
  EXPECT_EQ(t.encode(" ab"), (Ids{4, 5}));  // "a b" before "▁ a"
  EXPECT_EQ(t.encode(" ad"), (Ids{8, 3}));
  EXPECT_EQ(t.decode(t.encode("ab cd  a")), "ab cd  a");
  EXPECT_EQ(t.vocab_size(), 23);

  // "a b" is queued before "b c" takes its b away: what is then at its place has to wait for its own rank.
  Json json = small();
  json["model"]["vocab"]["bcd"] = 14;
  json["model"]["merges"] = {"b c", "a b", "bc d", "a bc"};
  EXPECT_EQ(load(json).encode("abcd"), (Ids{0, 14}));
}

TEST(TokenizerJson, CuttingAtBlanksChangesNothing) {
  Json crossing = small();  // a token with an inner blank: now merges cross words
  crossing["model"]["vocab"]["a▁"] = 14;
  crossing["model"]["merges"].push_back("a ▁");
  EXPECT_EQ(load(crossing).encode("d a c"), (Ids{3, 8, 4, 2}));
  EXPECT_EQ(load(crossing).encode("da c"), (Ids{3, 14, 2}));
}

TEST(TokenizerJson, LongTextsDoNotTakeSquareTime) {
  Json json = small();
  const Tokenizer t = load(json);
  std::string text;
  for (int i = 0; i < 300000; i++) text += "abcd"[(uint32_t(i) * 2654435761u >> 13) & 3];
  EXPECT_EQ(t.decode(t.encode(text)), text);
}

TEST(TokenizerJson, UnknownText) {
  Json json = small();
  EXPECT_THROW(load(json).encode("az"), Error);
  json["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(load(json).encode("azyb"), (Ids{0, 10, 10, 1}));
  EXPECT_EQ(load(json).encode("a\xffz\xfe"), (Ids{0, 10, 10, 10}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(load(json).encode("azybzz"), (Ids{0, 10, 1, 10}));
  json["model"]["byte_fallback"] = true;
  EXPECT_EQ(load(json).encode("é\xc3"), (Ids{13, 11}));  // the character, then a lone byte
  json["model"]["vocab"].erase("é");
  EXPECT_EQ(load(json).encode("éz"), (Ids{11, 12, 10}));
}

TEST(TokenizerJson, AddedTokens) {
  Json json = small();
  const Tokenizer t = load(json);
  EXPECT_EQ(t.encode("a<s>xb<s>"), (Ids{0, 22, 1, 20}));  // the longest first
  EXPECT_EQ(t.encode("<s>x", false), (Ids{22}));          // not special: always found
  EXPECT_THROW(t.encode("<s>", false), Error);            // ordinary text, for which this one has no tokens
  EXPECT_EQ(t.decode(Ids{0, 20, 22}), "a<s>x");
  EXPECT_EQ(t.decode(Ids{0, 20}, true), "a<s>");

  json["added_tokens"][0]["lstrip"] = json["added_tokens"][0]["rstrip"] = true;
  EXPECT_EQ(load(json).encode("a \t<s>\u2003\nb"), (Ids{0, 20, 1}));
  json["added_tokens"][1]["normalized"] = true;  // found after the normaliser, as it makes of it
  json["added_tokens"][1]["content"] = "c a";
  EXPECT_EQ(load(json).encode("bc ab"), (Ids{1, 21, 1}));
}

TEST(TokenizerJson, PrependAndMetaspace) {
  Json json = small();
  const Json replace = json["normalizer"];
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", "▁"}}, replace}}};
  json["decoder"] = {
      {"type", "Sequence"},
      {"decoders",
       {json["decoder"], {{"type", "Fuse"}}, {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  const Tokenizer llama = load(json);
  EXPECT_EQ(llama.encode("ad<s>ad"), (Ids{8, 3, 20, 8, 3}));  // every piece of text begins anew
  EXPECT_EQ(llama.encode(" ad"), (Ids{4, 8, 3}));
  EXPECT_EQ(llama.encode(""), Ids());
  EXPECT_EQ(llama.decode(Ids{8, 3, 8}), "ad a");
  EXPECT_EQ(llama.decode(Ids{3, 8}), "d a");

  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  json["decoder"] = json["pre_tokenizer"];
  const Tokenizer first = load(json);
  EXPECT_EQ(first.encode("ad<s>ad"), (Ids{8, 3, 20, 0, 3}));
  EXPECT_EQ(first.encode(" ad"), (Ids{8, 3}));  // there is one already
  EXPECT_EQ(first.decode(Ids{8, 3, 8}), "ad a");

  json["model"]["vocab"]["a▁"] = 14;
  json["model"]["merges"].push_back("a ▁");
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", false}};
  EXPECT_EQ(load(json).encode("da  c"), (Ids{3, 0, 4, 4, 2}));  // cut before each blank
  json["pre_tokenizer"]["split"] = false;
  EXPECT_EQ(load(json).encode("da  c"), (Ids{3, 14, 4, 2}));
}

TEST(TokenizerJson, Splits) {
  Json json = small();
  json["normalizer"] = nullptr;
  const auto with = [&](const Json& pattern, const char* behavior, bool invert) {
    json["pre_tokenizer"] = {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
    return load(json);
  };
  const Json regex{{"Regex", "b+"}}, string{{"String", "b"}};
  EXPECT_EQ(with(regex, "Isolated", false).encode("abcbb"), (Ids{0, 1, 2, 1, 1}));
  EXPECT_EQ(with(string, "Removed", false).encode("abcdb"), (Ids{0, 9}));
  EXPECT_EQ(with(regex, "Removed", true).encode("abcbb"), (Ids{1, 1, 1}));
  json["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(with(regex, "Isolated", false).encode("ab\xff\xfe\x62"), (Ids{0, 1, 10, 10, 1}));
  json["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", true}};
  json["model"]["vocab"]["1"] = 14, json["model"]["vocab"]["11"] = 15;
  json["model"]["merges"].push_back("1 1");
  EXPECT_EQ(load(json).encode("11"), (Ids{14, 14}));
  json["pre_tokenizer"]["individual_digits"] = false;
  EXPECT_EQ(load(json).encode("a11b"), (Ids{0, 15, 1}));
}

TEST(TokenizerJson, StartAndEndTokens) {
  Json json = small();
  EXPECT_EQ(load(json).bos(), 20);  // by their well-known names
  EXPECT_EQ(load(json).eos(), 21);
  EXPECT_FALSE(load(json).adds_bos());
  EXPECT_TRUE(load(json, {{"add_bos_token", true}}).adds_bos());
  EXPECT_EQ(load(json, {{"bos_token", {{"content", "</s>"}}}, {"eos_token", "<s>x"}}).bos(), 21);
  const Tokenizer t = load(json, {{"eos_token", "<s>x"}});
  EXPECT_EQ(t.eos(), 22);
  EXPECT_THROW(t.encode("<s>x", false), Error);  // an end token is never ordinary text
  EXPECT_THROW(load(json, {{"eos_token", "none such"}}), Error);
  json["post_processor"] = Json::parse(R"({"type": "TemplateProcessing", "pair": [],
      "single": [{"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"</s>": {"id": "</s>", "ids": [21], "tokens": ["</s>"]}}})");
  EXPECT_EQ(load(json).bos(), 21);
  EXPECT_TRUE(load(json, {{"add_bos_token", false}}).adds_bos());
}

TEST(TokenizerJson, IdsBesideASavedTokenizerAreKept) {
  const TempDir dir, saved;
  dir.write("tokenizer.json", small().dump());
  dir.write("tokenizer_config.json", R"({"chat_template": "{{ x }}"})");
  dir.write("config.json", R"({"bos_token_id": 3, "eos_token_id": 9})");
  dir.write("generation_config.json", R"({"eos_token_id": [1, 2]})");
  const Tokenizer t = Tokenizer::load(dir.path());
  EXPECT_EQ(t.bos(), 3);
  EXPECT_EQ(t.eos(), 1);
  t.save(saved.path());
  const Tokenizer again = Tokenizer::load(saved / "tokenizer.json");
  EXPECT_EQ(again.bos(), 3);
  EXPECT_EQ(again.eos(), 1);
  EXPECT_EQ(again.hash(), t.hash());
  EXPECT_EQ(read_file(saved / "tokenizer.json"), small().dump());
  EXPECT_EQ(Json::parse(read_file(saved / "tokenizer_config.json"))["chat_template"], "{{ x }}");
  EXPECT_NE(Tokenizer::load(dir.write("other/tokenizer.json", small().dump())).hash(), t.hash());
}

TEST(TokenizerJson, RefusesByName) {
  const auto expect_refused = [](const char* words, const std::function<void(Json&)>& change) {
    Json json = small();
    change(json);
    const std::string message = refusal(json);
    EXPECT_NE(message.find(words), message.npos) << message;
    EXPECT_NE(message.find("tokenizer.json: "), message.npos) << message;
  };
  expect_refused("model Unigram", [](Json& j) { j["model"]["type"] = "Unigram"; });
  expect_refused("model WordPiece", [](Json& j) { j["model"]["type"] = "WordPiece"; });
  expect_refused("dropout", [](Json& j) { j["model"]["dropout"] = 0.1; });
  expect_refused("continuing_subword_prefix", [](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; });
  expect_refused("end_of_word_suffix", [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; });
  expect_refused("normalizer NFC", [](Json& j) { j["normalizer"] = {{"type", "NFC"}}; });
  expect_refused("plain string", [](Json& j) { j["normalizer"]["pattern"] = {{"Regex", " +"}}; });
  expect_refused("pre_tokenizer Whitespace", [](Json& j) { j["pre_tokenizer"] = {{"type", "Whitespace"}}; });
  expect_refused("MergedWithNext", [](Json& j) {
    j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "MergedWithNext"}};
  });
  expect_refused("split pattern '('", [](Json& j) {
    j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}};
  });
  expect_refused("ByteLevel", [](Json& j) { j["decoder"] = {{"type", "ByteLevel"}}; });
  expect_refused("decoder WordPiece", [](Json& j) { j["decoder"] = {{"type", "WordPiece"}}; });
  expect_refused("decoder null", [](Json& j) { j["decoder"] = nullptr; });
  expect_refused("post_processor BertProcessing", [](Json& j) { j["post_processor"] = {{"type", "BertProcessing"}}; });
  expect_refused("single_word", [](Json& j) { j["added_tokens"][0]["single_word"] = true; });
  expect_refused("the token 'ad'", [](Json& j) { j["model"]["merges"].push_back("a d"); });
  expect_refused("expected two parts", [](Json& j) { j["model"]["merges"].push_back("a b c"); });
  expect_refused("has the id -1", [](Json& j) { j["model"]["vocab"]["x"] = -1; });
  expect_refused("has the id 1099511627776", [](Json& j) { j["model"]["vocab"]["x"] = int64_t(1) << 40; });
  expect_refused("", [](Json& j) { j["model"]["vocab"]["x"] = "y"; });
  expect_refused("", [](Json& j) { j.erase("model"); });
  expect_refused("nests deeper than 128", [](Json& j) {
    Json deep = nullptr;
    for (int i = 0; i < 100; i++) deep = {{"type", "Sequence"}, {"normalizers", {deep}}};
    j["normalizer"] = deep;
  });
  const TempDir dir;
  EXPECT_THROW(Tokenizer::load(dir.path()), Error);
  EXPECT_THROW(Tokenizer::load(dir / "missing"), Error);
  EXPECT_THROW(Tokenizer::load(dir.write("tokenizer.json", "{")), Error);
}

}  // namespace
}  // namespace isobath
