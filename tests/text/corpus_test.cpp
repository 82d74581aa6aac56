#include "text/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace isobath {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;
constexpr int32_t kEos = 256;

std::vector<int32_t> tokens(const TokenStream& stream) {
  std::vector<int32_t> all(size_t(stream.size()));
  stream.read(0, all);
  return all;
}
std::vector<std::string> texts(const TokenStream& stream) {
  std::vector<std::string> documents;
  for (int64_t d = 0; d < stream.documents(); d++) {
    const int64_t begin = stream.document_begin(d), end = stream.document_begin(d + 1);
    std::vector<int32_t> ids(size_t(end - begin));
    stream.read(begin, ids);
    EXPECT_EQ(ids.back(), kEos);
    documents.push_back(Tokenizer::bytes().decode(ids));
  }
  return documents;
}
std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}
// The documents of a file, read as validation text so that nothing is cut.
std::vector<std::string> documents_of(const fs::path& path) {
  return texts(Corpus::load(path, Tokenizer::bytes(), path).valid);
}

TEST(Corpus, TextIsDocumentsBetweenSeparatorLines) {
  const TempDir dir;
  const auto path = dir.write("a.txt",
                              "one\n<|endoftext|>\ntwo\r\nlines\r\n<|endoftext|>\r\n<|endoftext|>\n"
                              " <|endoftext|>\nnot <|endoftext|>\n<|endoftext|>");
  EXPECT_EQ(documents_of(path),
            (std::vector<std::string>{"one\n", "two\r\nlines\r\n", " <|endoftext|>\nnot <|endoftext|>\n"}));
}

TEST(Corpus, AFewDocumentsAreCut) {
  const TempDir dir;
  const std::string a(40, 'a'), b(19, 'b');
  const auto path = dir.write("a.txt", a + "\n<|endoftext|>\n" + b + "\n<|endoftext|>\ndddd\n<|endoftext|>\nc");
  const Corpus corpus = Corpus::load(path, Tokenizer::bytes());
  // 41, 20, 5 and 1 bytes: 2, 1, 1 and none of them are validation.
  EXPECT_EQ(texts(corpus.train), (std::vector<std::string>{a.substr(1), b, "dddd", "c"}));
  EXPECT_EQ(texts(corpus.valid), (std::vector<std::string>{"a\n", "\n", "\n"}));
  EXPECT_EQ(corpus.train.text_bytes(), 39 + 19 + 4 + 1);
  EXPECT_EQ(corpus.valid.text_bytes(), 2 + 1 + 1);
}

TEST(Corpus, ManyDocumentsStayWhole) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 47; i++) text += "document " + std::to_string(i) + "\n<|endoftext|>\n";
  const Corpus corpus = Corpus::load(dir.write("a.txt", text), Tokenizer::bytes());
  EXPECT_EQ(corpus.train.documents(), 45);
  EXPECT_EQ(texts(corpus.valid), (std::vector<std::string>{"document 23\n", "document 46\n"}));
  EXPECT_EQ(corpus.valid.text_bytes(), 24);
}

TEST(Corpus, ReadsAcrossRuns) {
  const TempDir dir;
  dir.write("t/b.txt", std::string(100, 'b'));
  dir.write("t/a.txt", std::string(60, 'a'));
  dir.write("t/.hidden", "x");
  const Corpus corpus = Corpus::load(dir / "t", Tokenizer::bytes());
  const auto all = tokens(corpus.train);
  ASSERT_EQ(int64_t(all.size()), 57 + 1 + 95 + 1);
  EXPECT_EQ(all[57], kEos);
  EXPECT_EQ(all.back(), kEos);
  for (int64_t begin = 0; begin < corpus.train.size(); begin++) {
    for (int64_t end = begin; end <= corpus.train.size(); end += 13) {
      std::vector<int32_t> part(size_t(end - begin), -7);
      corpus.train.read(begin, part);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + begin));
    }
  }
  EXPECT_EQ(corpus.train.document_at(57), 0);
  EXPECT_EQ(corpus.train.document_at(58), 1);
  std::vector<int32_t> two(2);
  EXPECT_THROW(corpus.train.read(153, two), Error);
  EXPECT_THROW(corpus.train.read(-1, two), Error);
}

TEST(Corpus, SeparateValidation) {
  const TempDir dir;
  const Corpus corpus = Corpus::load(dir.write("a.txt", "train"), Tokenizer::bytes(), dir.write("b.txt", "valid"));
  EXPECT_EQ(texts(corpus.train), std::vector<std::string>{"train"});
  EXPECT_EQ(texts(corpus.valid), std::vector<std::string>{"valid"});
}

TEST(Corpus, AFolderThatNamesItsValidationText) {
  const TempDir dir;
  for (const char* held_out : {"books.valid.txt", "val.txt", "text_val_000001.txt", "text-validation.txt"}) {
    SCOPED_TRACE(held_out);
    const fs::path folder = dir / held_out;
    dir.write(std::string(held_out) + "/a_train.txt", "train");
    dir.write(std::string(held_out) + "/evaluation.txt", "more");  // another word
    dir.write(std::string(held_out) + "/" + held_out, "held out");
    const Corpus corpus = Corpus::load(folder, Tokenizer::bytes());
    EXPECT_EQ(texts(corpus.train), (std::vector<std::string>{"train", "more"}));
    EXPECT_EQ(texts(corpus.valid), std::vector<std::string>{"held out"});
    EXPECT_EQ(Corpus::load(folder, Tokenizer::bytes(), folder).valid.documents(), 3);  // asked for all of it
    const Corpus other = Corpus::load(folder, Tokenizer::bytes(), dir.write("other.txt", "other"));
    EXPECT_EQ(texts(other.train), (std::vector<std::string>{"train", "more"}));
    EXPECT_EQ(texts(other.valid), std::vector<std::string>{"other"});
  }
  dir.write("only/val_0.txt", "x");
  dir.write("only/val_1.txt", "y");
  EXPECT_NE(message_of([&] { Corpus::load(dir / "only", Tokenizer::bytes()); }).find("validation text by its name"),
            std::string::npos);
}

TEST(Corpus, JsonLines) {
  const TempDir dir;
  const auto path = dir.write("a.jsonl",
                              "{\"text\": \"a\\u00e9\\ud83d\\ude00\\n\", \"id\": [1, {}]}\r\n\n  \n"
                              "{\"id\":1,\"text\":\"<|endoftext|>\"}\n{\"text\":\"\"}\n{\"text\":\"last\"}");
  EXPECT_EQ(documents_of(path), (std::vector<std::string>{"aé😀\n", "<|endoftext|>", "last"}));
  EXPECT_EQ(Corpus::load(path, Tokenizer::bytes(), path).valid.text_bytes(), 8 + 13 + 4);
}

TEST(Corpus, NamesTheBadLine) {
  const TempDir dir;
  const std::string good = "{\"text\":\"good\"}\n\n";
  for (const std::string bad : {"{", "[]", "{\"txt\":\"a\"}", "{\"text\":1}", "{\"text\":\"\\ud800\"}",
                                "{\"text\":\"\xff\"}", "{\"text\":\"a\"} x", "nul"}) {
    const auto path = dir.write("a.jsonl", good + bad + "\n" + good);
    const std::string message = message_of([&] { Corpus::load(path, Tokenizer::bytes()); });
    EXPECT_NE(message.find("a.jsonl: line 3 "), message.npos) << bad << ": " << message;
  }
  const std::string zero = "{\"text\":\"a\"}";
  const auto path = dir.write("a.jsonl", zero + '\0' + "\n");
  EXPECT_NE(message_of([&] { Corpus::load(path, Tokenizer::bytes()); }).find("line 1 "), std::string::npos);
}

TEST(Corpus, NamedTextOfAnyName) {
  const TempDir dir;
  EXPECT_EQ(documents_of(dir.write("LICENSE", "one\n<|endoftext|>\ntwo")), (std::vector<std::string>{"one\n", "two"}));
  EXPECT_EQ(documents_of(dir.write("notes.md", "text")), std::vector<std::string>{"text"});
}

TEST(Corpus, RefusesByName) {
  const TempDir dir;
  const auto refused = [&](const fs::path& path, const std::string& words) {
    const std::string message = message_of([&] { Corpus::load(path, Tokenizer::bytes()); });
    EXPECT_NE(message.find(words), message.npos) << message;
  };
  refused(dir / "missing.txt", "missing.txt");
  refused(dir.write("empty.txt", ""), "empty.txt: the file is empty");
  refused(dir.write("none.txt", "<|endoftext|>\n"), "none.txt: no text");
  refused(dir.write("short.txt", "a"), "name a validation text");
  refused(dir.write("a.pdf", std::string("%PDF\0", 5)), "a.pdf: not a kind");
  dir.write("mixed/a.txt", "text");
  dir.write("mixed/read.me", "text");
  refused(dir / "mixed", "read.me");
  dir.write("nested/b/a.txt", "text");
  refused(dir / "nested", "holds b,");
  fs::create_directory(dir / "nothing");
  refused(dir / "nothing", "no text in the folder");
}

TEST(Corpus, HashFollowsTheText) {
  const TempDir dir;
  const auto a = dir.write("a.txt", std::string(100, 'a')), b = dir.write("b.txt", std::string(101, 'a'));
  const Tokenizer t = Tokenizer::bytes();
  EXPECT_EQ(Corpus::load(a, t).hash, Corpus::load(a, t).hash);
  EXPECT_NE(Corpus::load(a, t).hash, Corpus::load(b, t).hash);
}

TEST(Corpus, OwnShards) {
  const TempDir dir;
  const Tokenizer t = Tokenizer::bytes();
  const std::vector<int32_t> ids{'a', 'b', kEos, kEos, 'c', kEos};
  const std::vector<int64_t> begin{0, 3, 4, 6};
  const auto path = dir / "a.tokens";
  write_shard(path, ids, begin, t, 3);
  EXPECT_EQ(documents_of(path), (std::vector<std::string>{"ab", "c"}));  // the empty one is left out
  EXPECT_EQ(Corpus::load(path, t, path).train.text_bytes(), 3);
  const std::string bytes = read_file(path);
  ASSERT_EQ(bytes.size(), 48u + 3 * 8 + 6 * 2);

  const auto damaged = [&](size_t at, char value) {
    std::string changed = bytes;
    changed[at] = value;
    dir.write("a.tokens", changed);
    return message_of([&] { Corpus::load(path, t, path); });
  };
  EXPECT_THAT(damaged(0, 'x'), HasSubstr("not a token shard"));
  EXPECT_THAT(damaged(8, 2), HasSubstr("version 2, expected 1"));
  EXPECT_THAT(damaged(12, 3), HasSubstr("ids of 3 bytes"));
  EXPECT_THAT(damaged(16, char(bytes[16] ^ 1)), HasSubstr("tokenize the text again"));
  EXPECT_THAT(damaged(24, 7), HasSubstr("the file is damaged"));
  EXPECT_THAT(damaged(48, 2), HasSubstr("document 0 has 2 tokens"));
  EXPECT_THAT(damaged(73, 2), HasSubstr("token 609 at position 0, expected less than 257"));
  EXPECT_THROW(write_shard(path, std::vector<int32_t>{257, kEos}, std::vector<int64_t>{0, 2}, t, 1), Error);
  EXPECT_THROW(write_shard(path, std::vector<int32_t>{1}, std::vector<int64_t>{0, 1}, t, 1), Error);
  EXPECT_THROW(write_shard(path, ids, std::vector<int64_t>{0, 3}, t, 1), Error);
}

TEST(Corpus, ShardsOfOthers) {
  ISOBATH_NEEDS_DATA(path, "");
  const Tokenizer t = Tokenizer::load(path / "tokenizers/gpt2");
  const auto want = nlohmann::json::parse(read_file(path / "shards/expected.json"));
  const TokenStream text = Corpus::load(path / "shards/docs.jsonl", t, path / "shards/docs.jsonl").valid;
  for (const char* name : {"nanogpt_train.bin", "llmc_gpt2.bin", "llmc_llama3_u32.bin"}) {
    SCOPED_TRACE(name);
    const Corpus corpus = Corpus::load(path / "shards" / name, t, path / "shards" / name);
    const TokenStream& s = corpus.valid;
    ASSERT_EQ(s.documents(), 20);
    EXPECT_EQ(s.size(), 3473);
    for (int64_t d = 0; d < 20; d++)
      EXPECT_EQ(s.document_begin(d + 1) - s.document_begin(d) - 1, want["doc_lengths"][size_t(d)]);
    std::vector<int32_t> first(want["first_doc_ids"].size());
    s.read(0, first);
    EXPECT_EQ(first, want["first_doc_ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(tokens(s), tokens(text));
    EXPECT_EQ(s.text_bytes(), text.text_bytes());
  }
  EXPECT_THAT(message_of([&] { Corpus::load(path / "shards/nanogpt_train.bin", Tokenizer::bytes()); }),
              HasSubstr("token 3198 at position 0, expected less than 257"));
}

TEST(Corpus, DamagedShardsOfOthers) {
  const TempDir dir;
  const auto message = [&](const std::string& bytes) {
    const auto path = dir.write("a.bin", bytes);
    return message_of([&] { Corpus::load(path, Tokenizer::bytes()); });
  };
  EXPECT_THAT(message("abc"), HasSubstr("a.bin: 3 bytes"));
  std::string llmc(1024 + 6, '\0');
  const uint32_t header[3] = {20240520, 1, 4};
  std::copy_n(reinterpret_cast<const char*>(header), sizeof header, llmc.begin());
  EXPECT_THAT(message(llmc), HasSubstr("names 4 tokens = 1032 bytes"));
  llmc[4] = 2;
  EXPECT_THAT(message(llmc), HasSubstr("version 2, expected 1"));
}

// Text bytes are counted exactly where a document is cut, whatever decoding does to the start of a text.
TEST(Corpus, TextBytesOfACutDocument) {
  ISOBATH_NEEDS_DATA(path, "");
  const Tokenizer t = Tokenizer::load(path / "models/stories260K-hf");
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 400; i++) text += "One day " + std::to_string(i) + " café\n";
  const Corpus corpus = Corpus::load(dir.write("a.txt", text), t);
  EXPECT_EQ(corpus.train.text_bytes() + corpus.valid.text_bytes(), int64_t(text.size()));
  std::vector<int32_t> ids = tokens(corpus.train);
  EXPECT_EQ(int64_t(t.decode(ids).size()), corpus.train.text_bytes());
  EXPECT_EQ(text.substr(0, size_t(corpus.train.text_bytes())), t.decode(ids));
}

TEST(Corpus, TinyShakespeare) {
  ISOBATH_NEEDS_DATA(path, "corpora/tinyshakespeare.txt");
  const Corpus corpus = Corpus::load(path, Tokenizer::bytes());
  EXPECT_EQ(corpus.train.size() + corpus.valid.size(), 1115394 + 2);
  EXPECT_EQ(corpus.valid.size(), 1115394 / 20 + 1);
  EXPECT_EQ(corpus.train.text_bytes() + corpus.valid.text_bytes(), 1115394);
}

}  // namespace
}  // namespace isobath
