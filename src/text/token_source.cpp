#include "text/token_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace isobath {
namespace {

constexpr std::string_view kSeparator = "<|endoftext|>";

std::string_view as_text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Takes the next line off the front of the bytes, with its end.
std::string_view take_line(std::string_view& bytes) {
  const size_t end = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
  const std::string_view line = bytes.substr(0, end);
  bytes.remove_prefix(end);
  return line;
}

bool is_separator(std::string_view line) {
  if (!line.starts_with(kSeparator)) return false;
  line.remove_prefix(kSeparator.size());
  return line.empty() || line == "\n" || line == "\r\n" || line == "\r";
}

TokenSource source_for(const Tokenizer& tokenizer) {
  TokenSource source;
  source.tokens.width = tokenizer.vocab_size() <= 1 << 16 ? 2 : 4;
  return source;
}

// Encodes one document. Bytes are encoded in pieces, so that a large file needs no second copy of four bytes a token;
// a subword could cross from one piece to the next.
void append_document(TokenSource& source, std::string_view text, const Tokenizer& tokenizer, Encoder& encoder,
                     std::vector<int32_t>& ids) {
  const size_t piece = tokenizer.is_bytes() ? size_t(1) << 20 : std::max<size_t>(1, text.size());
  for (size_t begin = 0; begin < text.size(); begin += piece) {
    ids.clear();
    encoder.encode(text.substr(begin, piece), false, ids);
    source.append(ids);
  }
  source.end_document(tokenizer.eos());
  source.text_bytes += int64_t(text.size());
}

// The "text" of one line of JSON lines.
std::string text_field(std::string_view line, const fs::path& path, int64_t number) {
  const std::string where = fmt::format("{}: line {}", path.string(), number);
  nlohmann::json object = parse_json(line, where);
  require(object.is_object(), "{} is JSON but not an object; expected {{\"text\": ...}}", where);
  const auto text = object.find("text");
  require(text != object.end() && text->is_string(), "{} has no string under \"text\"", where);
  return std::move(text->get_ref<std::string&>());
}

}  // namespace

void TokenSource::append(std::span<const int32_t> ids) {
  const size_t begin = memory.size(), width = size_t(tokens.width);
  memory.resize(begin + ids.size() * width);
  for (size_t i = 0; i < ids.size(); i++) std::memcpy(&memory[begin + i * width], &ids[i], width);
  tokens = {memory.data(), tokens.width, tokens.size + int64_t(ids.size())};
}

void TokenSource::end_document(int32_t eos) {
  const bool first = documents.empty();
  const int64_t begin = first ? 0 : documents.back().end + 1;
  if (tokens.size == begin) return;
  documents.push_back({begin, tokens.size});
  append({&eos, 1});
}

// In pieces, to stay small. The token before each piece is decoded too and taken off again, so that what decoding does
// to the start of a text is not done in the middle of one.
int64_t TokenSource::decoded_bytes(int64_t begin, int64_t end, bool mid_document, const Tokenizer& tokenizer) const {
  constexpr int64_t kPiece = 1 << 16;
  std::vector<int32_t> ids;
  int64_t bytes = 0;
  for (; begin < end; begin += kPiece, mid_document = true) {
    ids.resize(size_t(std::min(kPiece, end - begin) + mid_document));
    tokens.read(begin - mid_document, ids);
    bytes += int64_t(tokenizer.decode(ids).size());
    if (mid_document) bytes -= int64_t(tokenizer.decode({ids.data(), 1}).size());
  }
  return bytes;
}

TokenSource read_text(std::string_view bytes, const Tokenizer& tokenizer) {
  TokenSource source = source_for(tokenizer);
  Encoder encoder(tokenizer);
  std::vector<int32_t> ids;
  const char* document = bytes.data();
  while (!bytes.empty()) {
    const std::string_view line = take_line(bytes);
    if (!is_separator(line)) continue;
    append_document(source, {document, size_t(line.data() - document)}, tokenizer, encoder, ids);
    document = line.data() + line.size();
  }
  append_document(source, {document, size_t(bytes.data() - document)}, tokenizer, encoder, ids);
  return source;
}

TokenSource read_jsonl(std::string_view bytes, const fs::path& path, const Tokenizer& tokenizer) {
  TokenSource source = source_for(tokenizer);
  Encoder encoder(tokenizer);
  std::vector<int32_t> ids;
  for (int64_t number = 1; !bytes.empty(); number++) {
    const std::string_view line = take_line(bytes);
    if (line.find_first_not_of(" \t\r\n") == line.npos) continue;
    append_document(source, text_field(line, path, number), tokenizer, encoder, ids);
  }
  return source;
}

bool is_corpus_file(const fs::path& path) {
  const fs::path ending = path.extension();
  return ending == ".txt" || ending == ".jsonl" || ending == ".tokens" || ending == ".bin";
}

TokenSourcePtr read_source(const fs::path& path, const Tokenizer& tokenizer) {
  MappedFile file(path);
  const std::string_view bytes = as_text(file);
  require(!bytes.empty(), "{}: the file is empty", path.string());
  const fs::path ending = path.extension();
  TokenSource source;
  if (!is_corpus_file(path)) {
    require(bytes.find('\0') == bytes.npos,
            "{}: not a kind of text that is read; expected .txt, .jsonl, .tokens, .bin, or text under another name",
            path.string());
    source = read_text(bytes, tokenizer);
  } else if (ending == ".txt")
    source = read_text(bytes, tokenizer);
  else if (ending == ".jsonl")
    source = read_jsonl(bytes, path, tokenizer);
  else if (ending == ".tokens")
    source = read_shard(bytes, path, tokenizer);
  else
    source = read_foreign_shard(bytes, path, tokenizer);
  require(!source.documents.empty(), "{}: no text in the file", path.string());
  if (source.memory.empty()) source.file = std::move(file);
  return std::make_shared<const TokenSource>(std::move(source));
}

}  // namespace isobath
