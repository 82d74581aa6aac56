#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer_files.h"
#include "text/tokenizer_state.h"
#include "text/utf8.h"

namespace isobath {

Tokenizer Tokenizer::bytes() {
  constexpr int32_t kEos = 256;
  const std::string eos = "<|endoftext|>";
  const auto state = std::make_shared<State>();
  Vocabulary vocabulary;
  for (int32_t b = 0; b < 256; b++) {
    state->pieces.emplace_back(1, char(uint8_t(b)));
    vocabulary.emplace(state->pieces.back(), b);
  }
  state->bpe.emplace(std::move(vocabulary), Bpe::Merges(), BpeOptions{.byte_level = true});
  state->added.add({eos, kEos, true, false, false});
  state->pieces.push_back(eos);
  state->special.resize(state->pieces.size());
  state->special[kEos] = true;
  state->bos = state->eos = kEos;
  state->is_bytes = true;
  state->hash = hash_bytes("isobath bytes 1");
  return Tokenizer(state);
}

Tokenizer Tokenizer::load(const fs::path& name_or_path) {
  if (name_or_path == "bytes") return bytes();
  return Tokenizer(std::make_shared<const State>(read_tokenizer_files(name_or_path)));
}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json) {
  return Tokenizer(std::make_shared<const State>(read_tokenizer_bytes(tokenizer_json)));
}

void Tokenizer::save(const fs::path& folder) const {
  for (const auto& [name, bytes] : state_->files) replace_file(folder / name, bytes);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool specials) const {
  std::vector<int32_t> ids;
  Encoder(*this).encode(text, specials, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool specials) const {
  std::string text;
  for (const int32_t id : ids) text += state_->piece(id, specials);
  text.erase(0, std::min(text.find_first_not_of(' '), state_->strip));
  return text;
}

int64_t Tokenizer::vocab_size() const { return int64_t(state_->pieces.size()); }
int32_t Tokenizer::bos() const { return state_->bos; }
int32_t Tokenizer::eos() const { return state_->eos; }
bool Tokenizer::adds_bos() const { return state_->adds_bos; }
bool Tokenizer::is_bytes() const { return state_->is_bytes; }
uint64_t Tokenizer::hash() const { return state_->hash; }

Decoder::Decoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), to_strip_(tokenizer.state_->strip) {}

std::string Decoder::push(int32_t id) {
  std::string_view piece = tokenizer_.state_->piece(id, false);
  for (; to_strip_ > 0 && piece.starts_with(' '); to_strip_--) piece.remove_prefix(1);
  if (!piece.empty()) to_strip_ = 0;  // the text has begun
  pending_ += piece;
  return take_whole();
}

// What is whole of the pending bytes.
std::string Decoder::take_whole() {
  std::string shown;
  size_t at = 0;
  while (at < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(at);
    const Utf8Char c = utf8_front(rest);
    if (c.cut) break;
    if (c.code == kInvalidUtf8)
      append_utf8(shown, 0xFFFD);
    else
      shown += rest.substr(0, c.size);
    at += c.size;
  }
  pending_.erase(0, at);
  return shown;
}

std::string Decoder::finish() {
  std::string shown;
  if (!pending_.empty()) append_utf8(shown, 0xFFFD);  // one mark for a character that never ended
  pending_.clear();
  to_strip_ = tokenizer_.state_->strip;
  return shown;
}

}  // namespace isobath
