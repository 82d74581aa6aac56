// Valid inputs, damaged a few thousand times: Error or success, never a crash (run under the address sanitizer).
#include <gtest/gtest.h>

#include <functional>

#include "fuzz/text_targets.h"
#include "support/mutate.h"
#include "support/temp_dir.h"
#include "text/corpus.h"

namespace isobath {
namespace {

constexpr uint64_t kTries = 3000;

void damage(const std::string& valid, void (*target)(std::string_view)) {
  target(valid);
  for (uint64_t seed = 0; seed < kTries; seed++) target(testing::mutate(valid, seed));
}

TEST(DamagedInput, TokenizerJson) {
  damage(R"({"added_tokens": [{"id": 12, "content": "<s>", "special": true, "lstrip": true, "normalized": false},
                {"id": 13, "content": "</s>", "special": false, "rstrip": true, "normalized": true}],
      "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
      "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+(?!\\S)|\\d{1,3}"}, "behavior": "Isolated",
                "invert": false},
      "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [12]}}},
      "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"},
                "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true, "ignore_merges": false,
                "vocab": {"<unk>": 0, "\u2581": 1, "l": 2, "o": 3, "ll": 4, "llo": 5, "<0xC3>": 6, "<0xFF>": 7},
                "merges": ["l l", ["ll", "o"]]}})",
         fuzz::tokenizer_json);
  damage(R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true}, "decoder": {"type": "ByteLevel"},
      "model": {"type": "BPE", "vocab": {"H": 0, "e": 1, "l": 2, "o": 3, "ll": 4, "Ġ": 5, "u": 6}, "unk_token": "u",
                "merges": ["l l"]}})",
         fuzz::tokenizer_json);
}

TEST(DamagedInput, JsonLines) {
  damage("{\"text\": \"a\\u00e9\\ud83d\\ude00\", \"meta\": {\"n\": [1.5e3, null]}}\r\n\n{\"text\": \"b\"}",
         fuzz::jsonl);
}

TEST(DamagedInput, Shards) {
  const testing::TempDir dir;
  const std::vector<int32_t> tokens{1, 2, 256, 3, 256, 4, 5, 6, 256};
  const std::vector<int64_t> begin{0, 3, 5, 9};
  write_shard(dir / "a.tokens", tokens, begin, Tokenizer::bytes(), 6);
  damage(read_file(dir / "a.tokens"), fuzz::shard);

  std::string llmc(1024 + 10, '\0');
  const uint32_t header[3] = {20240520, 1, 5};
  std::memcpy(llmc.data(), header, sizeof header);
  damage(llmc, fuzz::shard);
  damage(llmc.substr(1024), fuzz::shard);  // nanoGPT
}

}  // namespace
}  // namespace isobath
