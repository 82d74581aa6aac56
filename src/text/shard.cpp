// Token shards: our own, and those of nanoGPT and llm.c.
//
// Ours: the header below, `documents` lengths of 8 bytes (with their eos), then the ids.
#include <algorithm>

#include "base/error.h"
#include "text/token_source.h"

namespace isobath {
namespace {

struct ShardHeader {
  char magic[8];
  uint32_t version, width;  // 1; bytes an id
  uint64_t tokenizer_hash;
  int64_t tokens, documents, text_bytes;
};
static_assert(sizeof(ShardHeader) == 48);
constexpr std::string_view kMagic = "isobath\n";
constexpr uint32_t kVersion = 1;

// llm.c, dev/data/data_common.py: 256 words of header (magic, version, tokens), then ids of 2 or 4 bytes.
constexpr size_t kLlmcHeaderBytes = 1024;
constexpr uint32_t kLlmcNarrow = 20240520, kLlmcNarrowVersion = 1, kLlmcWide = 20240801, kLlmcWideVersion = 7;

template <class T>
T load(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

const std::byte* at(std::string_view bytes, size_t offset) {
  return reinterpret_cast<const std::byte*>(bytes.data() + offset);
}

void check_vocabulary(const TokenArray& tokens, const fs::path& path, const Tokenizer& tokenizer) {
  const uint32_t vocabulary = uint32_t(tokenizer.vocab_size());
  for (int64_t i = 0; i < tokens.size; i++)
    require(uint32_t(tokens[i]) < vocabulary,
            "{}: token {} at position {}, expected less than {}; is this the tokenizer that made the file?",
            path.string(), uint32_t(tokens[i]), i, vocabulary);
}

// Documents are what lies between end tokens, whether these stand before each (llm.c) or after (nanoGPT).
void find_documents(TokenSource& source, int32_t eos) {
  int64_t begin = 0;
  for (int64_t i = 0; i <= source.tokens.size; i++) {
    if (i < source.tokens.size && source.tokens[i] != eos) continue;
    if (i > begin) source.documents.push_back({begin, i});
    begin = i + 1;
  }
}

TokenArray llmc_tokens(std::string_view bytes, const fs::path& path) {
  const uint32_t version = load<uint32_t>(bytes, 4), count = load<uint32_t>(bytes, 8);
  const bool wide = load<uint32_t>(bytes, 0) == kLlmcWide;
  const uint32_t expected = wide ? kLlmcWideVersion : kLlmcNarrowVersion;
  require(version == expected, "{}: llm.c shard of version {}, expected {}", path.string(), version, expected);
  const size_t size = kLlmcHeaderBytes + size_t(count) * (wide ? 4 : 2);
  require(bytes.size() == size, "{}: {} bytes, but its header names {} tokens = {} bytes; the file is damaged",
          path.string(), bytes.size(), count, size);
  return {at(bytes, kLlmcHeaderBytes), wide ? 4 : 2, int64_t(count)};
}

void check_header(const ShardHeader& h, std::string_view bytes, const fs::path& path, const Tokenizer& tokenizer) {
  require(h.version == kVersion, "{}: shard of version {}, expected {}", path.string(), h.version, kVersion);
  require(h.width == 2 || h.width == 4, "{}: ids of {} bytes, expected 2 or 4", path.string(), h.width);
  require(h.tokenizer_hash == tokenizer.hash(),
          "{}: made by another tokenizer than the one given (hash {:016x}, not {:016x}); name its tokenizer "
          "(--tokenizer), or tokenize the text again",
          path.string(), h.tokenizer_hash, tokenizer.hash());
  const int64_t room = int64_t(bytes.size() - sizeof h);
  const bool fits = h.tokens >= 0 && h.documents >= 0 && h.documents <= h.tokens && h.text_bytes >= 0 &&
                    h.tokens <= room / h.width && h.documents <= room / 8 &&
                    h.documents * 8 + h.tokens * h.width == room;
  require(fits, "{}: {} bytes, but its header names {} tokens in {} documents; the file is damaged", path.string(),
          bytes.size(), h.tokens, h.documents);
}

}  // namespace

TokenSource read_shard(std::string_view bytes, const fs::path& path, const Tokenizer& tokenizer) {
  require(bytes.starts_with(kMagic) && bytes.size() >= sizeof(ShardHeader),
          "{}: not a token shard of isobath; text is read from .txt and .jsonl files", path.string());
  const auto header = load<ShardHeader>(bytes, 0);
  check_header(header, bytes, path, tokenizer);
  const size_t ids = sizeof header + size_t(header.documents) * 8;

  TokenSource source;
  source.tokens = {at(bytes, ids), int(header.width), header.tokens};
  source.text_bytes = header.text_bytes;
  check_vocabulary(source.tokens, path, tokenizer);
  source.documents.reserve(size_t(header.documents));
  int64_t begin = 0;
  for (int64_t d = 0; d < header.documents; d++) {
    const auto length = load<int64_t>(bytes, sizeof header + size_t(d) * 8);
    require(length >= 1 && length <= header.tokens - begin && source.tokens[begin + length - 1] == tokenizer.eos(),
            "{}: document {} has {} tokens or does not end in the end token; the file is damaged", path.string(), d,
            length);
    if (length > 1) source.documents.push_back({begin, begin + length - 1});
    begin += length;
  }
  require(begin == header.tokens, "{}: its documents hold {} of its {} tokens; the file is damaged", path.string(),
          begin, header.tokens);
  return source;
}

TokenSource read_foreign_shard(std::string_view bytes, const fs::path& path, const Tokenizer& tokenizer) {
  TokenSource source;
  const uint32_t magic = bytes.size() >= kLlmcHeaderBytes ? load<uint32_t>(bytes, 0) : 0;
  if (magic == kLlmcNarrow || magic == kLlmcWide) {
    source.tokens = llmc_tokens(bytes, path);
  } else {
    require(bytes.size() % 2 == 0, "{}: {} bytes, expected ids of 2 bytes each (nanoGPT) or an llm.c header",
            path.string(), bytes.size());
    source.tokens = {at(bytes, 0), 2, int64_t(bytes.size() / 2)};
  }
  check_vocabulary(source.tokens, path, tokenizer);
  find_documents(source, tokenizer.eos());
  for (const auto& d : source.documents) source.text_bytes += source.decoded_bytes(d.begin, d.end, false, tokenizer);
  return source;
}

void write_shard(const fs::path& path, std::span<const int32_t> tokens, std::span<const int64_t> document_begin,
                 const Tokenizer& tokenizer, int64_t text_bytes) {
  const int64_t documents = int64_t(document_begin.size()) - 1;
  require(documents >= 0 && document_begin.front() == 0 && document_begin.back() == int64_t(tokens.size()),
          "write_shard {}: documents from {} to {}, expected 0 to {} tokens", path.string(),
          document_begin.empty() ? 0 : document_begin.front(), document_begin.empty() ? 0 : document_begin.back(),
          tokens.size());
  const int64_t vocabulary = tokenizer.vocab_size();
  ShardHeader header{{},        kVersion,  vocabulary <= 1 << 16 ? 2u : 4u, tokenizer.hash(), int64_t(tokens.size()),
                     documents, text_bytes};
  std::copy(kMagic.begin(), kMagic.end(), header.magic);
  FileWriter out(path);
  out.write(&header, sizeof header);
  for (int64_t d = 0; d < documents; d++) {
    const int64_t end = document_begin[size_t(d + 1)], length = end - document_begin[size_t(d)];
    require(length >= 1 && tokens[size_t(end - 1)] == tokenizer.eos(),
            "write_shard {}: document {} of {} tokens does not end in the end token", path.string(), d, length);
    out.write(&length, sizeof length);
  }
  std::vector<std::byte> piece;
  for (size_t begin = 0; begin < tokens.size(); begin += size_t(1) << 16) {
    const auto ids = tokens.subspan(begin, std::min(tokens.size() - begin, size_t(1) << 16));
    piece.resize(ids.size() * header.width);
    for (size_t i = 0; i < ids.size(); i++) {
      require(ids[i] >= 0 && ids[i] < vocabulary, "write_shard {}: token {} at position {}, expected 0 to {}",
              path.string(), ids[i], begin + i, vocabulary - 1);
      std::memcpy(&piece[i * header.width], &ids[i], header.width);
    }
    out.write(piece.data(), piece.size());
  }
  out.commit();
}

}  // namespace isobath
