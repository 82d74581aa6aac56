#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace isobath {
namespace {

using testing::TempDir;
using Ids = std::vector<int32_t>;

Ids to_ids(const nlohmann::json& list) { return list.get<Ids>(); }

std::string stream(const Tokenizer& tokenizer, const Ids& ids) {
  Decoder decoder(tokenizer);
  std::string text;
  for (const int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

// Published texts and ids, one pair a line.
void expect_vectors(const Tokenizer& tokenizer, const fs::path& path, int64_t count) {
  std::ifstream lines(path);
  Encoder encoder(tokenizer);
  int64_t seen = 0;
  for (std::string line; std::getline(lines, line); seen++) {
    const auto vector = nlohmann::json::parse(line);
    const std::string text = vector["text"];
    const Ids want = to_ids(vector["ids"]);
    EXPECT_EQ(tokenizer.encode(text, false), want) << text;
    EXPECT_EQ(tokenizer.decode(want), text);
    EXPECT_EQ(stream(tokenizer, want), text);
    for (int again = 0; again < 2; again++) {
      Ids ids{-5};  // appended to; from memory the second time
      encoder.encode(text, false, ids);
      EXPECT_EQ(Ids(ids.begin() + 1, ids.end()), want);
    }
  }
  EXPECT_EQ(seen, count);
}

TEST(ByteTokenizer, IdsAreBytes) {
  const Tokenizer t = Tokenizer::load("bytes");
  EXPECT_EQ(t.vocab_size(), 257);
  EXPECT_EQ(t.eos(), 256);
  EXPECT_EQ(t.bos(), 256);
  EXPECT_FALSE(t.adds_bos());
  std::string all;
  Ids want;
  for (int32_t b = 0; b < 256; b++) all.push_back(char(uint8_t(b))), want.push_back(b);
  EXPECT_EQ(t.encode(all), want);
  EXPECT_EQ(t.decode(want), all);
  EXPECT_EQ(t.encode("a<|endoftext|>b"), (Ids{'a', 256, 'b'}));
  EXPECT_EQ(t.encode("<|endoftext|>", false).size(), 13u);
  EXPECT_EQ(t.decode(Ids{'a', 256, 'b'}), "ab");
  EXPECT_EQ(t.decode(Ids{'a', 256, 'b'}, true), "a<|endoftext|>b");
  EXPECT_EQ(t.encode(""), Ids());
  EXPECT_EQ(t.decode(Ids{-1, 'a', 257, 1 << 30}), "a");
}

TEST(Decoder, ShowsWholeCharacters) {
  Decoder d(Tokenizer::bytes());
  EXPECT_EQ(d.push(0xF0), "");
  EXPECT_EQ(d.push(0x9F), "");
  EXPECT_EQ(d.push(0x98), "");
  EXPECT_EQ(d.push(0x80), "😀");
  EXPECT_EQ(d.push(0xC3), "");
  EXPECT_EQ(d.push('a'), "\uFFFDa");
  EXPECT_EQ(d.push(0xFF), "\uFFFD");
  EXPECT_EQ(d.push(0xED), "");
  EXPECT_EQ(d.push(0xA0), "\uFFFD\uFFFD");  // half of a surrogate pair
  EXPECT_EQ(d.push(0xE2), "");
  EXPECT_EQ(d.finish(), "\uFFFD");
  EXPECT_EQ(d.finish(), "");
}

// Loaded once: reading a real vocabulary takes a while under sanitizers.
const Tokenizer& shared(const char* name) {
  static std::map<std::string, Tokenizer> loaded;
  const auto found = loaded.find(name);
  return found != loaded.end() ? found->second
                               : loaded.emplace(name, Tokenizer::load(testing::test_data(name))).first->second;
}

TEST(Gpt2Tokenizer, PublishedVectors) {
  ISOBATH_NEEDS_DATA(path, "tokenizers");
  const Tokenizer& t = shared("tokenizers/gpt2");
  EXPECT_EQ(t.vocab_size(), 50257);
  EXPECT_EQ(t.eos(), 50256);
  EXPECT_FALSE(t.adds_bos());
  expect_vectors(t, path / "vectors/gpt2.jsonl", 46);
  EXPECT_EQ(t.encode("hello world"), (Ids{31373, 995}));
  EXPECT_EQ(t.encode("hello <|endoftext|>"), (Ids{31373, 220, 50256}));
  const std::string broken = "a\xff\xfe caf\xc3\xa9 \xc3(\x80";
  EXPECT_EQ(t.decode(t.encode(broken)), broken);
}

TEST(LlamaTokenizer, PublishedVectors) {
  ISOBATH_NEEDS_DATA(path, "tokenizers");
  const Tokenizer& t = shared("tokenizers/phi3");
  EXPECT_EQ(t.vocab_size(), 32011);
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
  EXPECT_FALSE(t.adds_bos());  // its template has none
  expect_vectors(t, path / "vectors/phi3.jsonl", 46);
  const std::string broken = "a\xff\xfe caf\xc3\xa9 \xc3(\x80";
  EXPECT_EQ(t.decode(t.encode(broken)), broken);
}

TEST(LlamaTokenizer, SpecialTokensTakeTheirBlanks) {
  ISOBATH_NEEDS_DATA(path, "tokenizers/phi3");
  const Tokenizer& t = shared("tokenizers/phi3");
  const Ids hello = t.encode("Hello", false);
  Ids want{32010};  // <|user|>, which takes the blanks behind it; a text begins anew after it
  want.insert(want.end(), hello.begin(), hello.end());
  want.push_back(32007);
  EXPECT_EQ(t.encode("<|user|> \n\u00A0\u3000Hello<|end|>\n"), want);
  EXPECT_EQ(t.decode(want), "Hello");
  EXPECT_EQ(t.encode("<|endoftext|> ").size(), 2u);  // this one does not
  for (const int32_t id : t.encode("</s><|end|>", false)) EXPECT_LT(id, 32000) << "ordinary text";
  for (const int32_t id : t.encode("</s><|end|>", false)) EXPECT_NE(id, 2);
}

TEST(LlamaTokenizer, Stories260K) {
  ISOBATH_NEEDS_DATA(path, "models");
  const Tokenizer t = Tokenizer::load(path / "stories260K-hf");
  EXPECT_EQ(t.vocab_size(), 512);
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
  EXPECT_TRUE(t.adds_bos());
  const auto golden = nlohmann::json::parse(std::ifstream(path / "stories260K/golden.json"));
  for (const auto& example : golden["encode_examples"]) {
    Ids ids = t.encode(example["text"].get<std::string>());
    ids.insert(ids.begin(), t.bos());
    EXPECT_EQ(ids, to_ids(example["ids"])) << example["text"];
    EXPECT_EQ(t.decode(ids), example["text"]);
    EXPECT_EQ(stream(t, ids), example["text"]);
  }
  EXPECT_EQ(t.decode(to_ids(golden["greedy"]["ids"])), golden["greedy"]["text"]);
}

TEST(Llama3Tokenizer, SpecialTokensAndWholeWords) {
  ISOBATH_NEEDS_DATA(path, "tokenizers/mini_llama3/tokenizer.json");
  const Tokenizer t = Tokenizer::load(path);
  EXPECT_EQ(t.vocab_size(), 128002);
  EXPECT_EQ(t.bos(), 128000);
  EXPECT_EQ(t.eos(), 128001);
  EXPECT_EQ(t.encode("<|begin_of_text|>\n<|end_of_text|>"), (Ids{128000, 198, 128001}));
  for (const int32_t id : t.encode("<|end_of_text|>", false)) EXPECT_LT(id, 128000);
  EXPECT_EQ(t.encode("can't"), (Ids{4919, 956}));

  // Its merges do not reach every word; Llama 3's own file says that a word of the vocabulary is one token.
  auto json = nlohmann::json::parse(std::ifstream(path));
  json["model"]["ignore_merges"] = true;
  const TempDir dir;
  const Tokenizer whole = Tokenizer::load(dir.write("tokenizer.json", json.dump()));
  EXPECT_EQ(whole.encode("hello world"), (Ids{15339, 1917}));
  EXPECT_EQ(whole.encode("123000"), (Ids{4513, 931}));
  EXPECT_EQ(whole.encode("func main() {}\n"), (Ids{2900, 1925, 368, 4792, 198}));
}

TEST(Tokenizer, SavedIsTheSame) {
  ISOBATH_NEEDS_DATA(path, "");
  for (const char* name : {"tokenizers/gpt2", "tokenizers/phi3", "tokenizers/mini_llama3", "models/stories260K-hf"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const Tokenizer& t = shared(name);
    t.save(dir.path());
    const Tokenizer again = Tokenizer::load(dir.path());
    EXPECT_EQ(again.hash(), t.hash());
    EXPECT_EQ(again.bos(), t.bos());
    EXPECT_EQ(again.eos(), t.eos());
    EXPECT_EQ(again.adds_bos(), t.adds_bos());
  }
}

}  // namespace
}  // namespace isobath
