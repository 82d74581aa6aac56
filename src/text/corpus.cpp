#include "text/corpus.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "text/token_stream.h"

namespace isobath {
namespace {

constexpr int64_t kWholeDocuments = 20;  // from here on whole documents are split off
constexpr int64_t kValidShare = 20;      // one in so many

// books.valid.tokens, val.bin, fineweb_val_000000.bin: held-out text that lies beside its training text, as we,
// nanoGPT and llm.c name it.
bool is_validation_file(const fs::path& file) {
  const std::string stem = file.stem().string();
  size_t begin = 0;
  while (begin < stem.size()) {
    const size_t end = std::min(stem.find_first_of("._-", begin), stem.size());
    const std::string_view word = std::string_view(stem).substr(begin, end - begin);
    if (word == "val" || word == "valid" || word == "validation") return true;
    begin = end + 1;
  }
  return false;
}

// The file, or the files of the folder in the order of their names.
std::vector<fs::path> files_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> files;
  const fs::directory_iterator folder(path, error);
  require(!error, "cannot read {}: {}", path.string(), error.message());
  for (const auto& entry : folder) {
    const fs::path& file = entry.path();
    if (file.filename().native().starts_with('.')) continue;
    require(!fs::is_directory(file, error) && is_corpus_file(file),
            "{}: holds {}, which is not text that is read (.txt, .jsonl, .tokens, .bin); move it away", path.string(),
            file.filename().string());
    files.push_back(file);
  }
  require(!files.empty(), "{}: no text in the folder; expected .txt, .jsonl, .tokens or .bin files", path.string());
  std::sort(files.begin(), files.end());
  return files;
}

using Sources = std::vector<TokenSourcePtr>;

Sources read_sources(std::span<const fs::path> files, const Tokenizer& tokenizer) {
  Sources sources;
  for (const fs::path& file : files) sources.push_back(read_source(file, tokenizer));
  return sources;
}

class Split {
 public:
  explicit Split(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), train_(tokenizer.eos()), valid_(tokenizer.eos()) {}

  void divide(const Sources& sources) {
    int64_t documents = 0, document = 0;
    for (const auto& source : sources) documents += int64_t(source->documents.size());
    const int64_t chosen = documents / kValidShare;  // of the documents, where they stay whole
    for (const auto& source : sources) {
      for (const auto& d : source->documents) {
        if (documents < kWholeDocuments)
          cut(source, d);
        else if ((document + 1) * chosen / documents > document * chosen / documents)
          add_valid(source, d.begin, d.end, false);
        else
          train_.add(source, d.begin, d.end);
        document++;
      }
      text_bytes_ += source->text_bytes;
    }
  }

  TokenStream train() { return train_.finish(text_bytes_ - valid_bytes_); }
  TokenStream valid() { return valid_.finish(valid_bytes_); }

 private:
  // The last 5% of a document, at least one token, is validation; a document of one token is not cut.
  void cut(const TokenSourcePtr& source, const TokenSource::Document& d) {
    const int64_t size = d.end - d.begin;
    const int64_t kept = size - std::min(size - 1, std::max<int64_t>(1, size / kValidShare));
    train_.add(source, d.begin, d.begin + kept);
    if (kept < size) add_valid(source, d.begin + kept, d.end, true);
  }

  void add_valid(const TokenSourcePtr& source, int64_t begin, int64_t end, bool mid_document) {
    valid_.add(source, begin, end);
    valid_bytes_ += source->decoded_bytes(begin, end, mid_document, tokenizer_);
  }

  const Tokenizer& tokenizer_;
  StreamBuilder train_, valid_;
  int64_t text_bytes_ = 0, valid_bytes_ = 0;
};

TokenStream whole(const Sources& sources, const Tokenizer& tokenizer) {
  StreamBuilder builder(tokenizer.eos());
  int64_t text_bytes = 0;
  for (const TokenSourcePtr& source : sources) {
    for (const auto& d : source->documents) builder.add(source, d.begin, d.end);
    text_bytes += source->text_bytes;
  }
  return builder.finish(text_bytes);
}

// Of every token and of where documents begin, a block at a time.
uint64_t hash_of(const TokenStream& stream) {
  constexpr int64_t kBlock = 1 << 16;
  std::vector<int32_t> block;
  uint64_t hash = uint64_t(stream.documents());
  for (int64_t begin = 0; begin < stream.size(); begin += kBlock) {
    block.resize(size_t(std::min(kBlock, stream.size() - begin)));
    stream.read(begin, block);
    hash = hash * 0x100000001b3u ^
           hash_bytes({reinterpret_cast<const char*>(block.data()), block.size() * sizeof(int32_t)});
  }
  return hash;
}

uint64_t hash_of(const Corpus& corpus, const Tokenizer& tokenizer) {
  return hash_bytes(fmt::format("{} {} {} {} {}", tokenizer.hash(), corpus.train.size(), hash_of(corpus.train),
                                corpus.valid.size(), hash_of(corpus.valid)));
}

}  // namespace

Corpus Corpus::load(const fs::path& path, const Tokenizer& tokenizer, const fs::path& valid_path) {
  require(tokenizer.eos() >= 0,
          "{}: the tokenizer names no end token (eos) to end documents with; name one in its "
          "tokenizer_config.json",
          path.string());
  // What a folder holds out itself is never trained on.
  const auto parted = [](std::vector<fs::path> files) {
    const auto held_out = files.size() == 1
                              ? files.end()
                              : std::stable_partition(files.begin(), files.end(), std::not_fn(is_validation_file));
    return std::pair(std::vector(files.begin(), held_out), std::vector(held_out, files.end()));
  };
  auto [train, valid] = parted(files_of(path));
  require(!train.empty(), "{}: every file in the folder is validation text by its name; expected text to train on",
          path.string());
  if (!valid_path.empty()) {
    auto [others, named] = parted(files_of(valid_path));
    valid = named.empty() ? others : named;
    if (valid_path == path) valid = files_of(path);  // asked for all of it
  }
  const Sources sources = read_sources(train, tokenizer);
  Split split(tokenizer);
  if (valid.empty()) split.divide(sources);
  Corpus corpus = valid.empty() ? Corpus{split.train(), split.valid()}
                                : Corpus{whole(sources, tokenizer), whole(read_sources(valid, tokenizer), tokenizer)};
  require(corpus.train.size() >= 2 && corpus.valid.size() >= 2,
          "{}: {} tokens to train on and {} to validate, expected at least 2 of each; use more text, or name a "
          "validation text",
          path.string(), corpus.train.size(), corpus.valid.size());
  corpus.hash = hash_of(corpus, tokenizer);
  return corpus;
}

}  // namespace isobath
