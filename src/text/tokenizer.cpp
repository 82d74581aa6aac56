#include "text/tokenizer.h"

#include "base/error.h"
#include "text/tokenizer_state.h"
#include "text/utf8.h"

namespace isobath {
namespace {
constexpr int32_t kByteEos = 256;
}

struct Encoder::Memory {};

Tokenizer Tokenizer::bytes() {
  return Tokenizer(std::make_shared<const State>(State{kByteEos, kByteEos, false, hash_bytes("isobath bytes 1")}));
}
Tokenizer Tokenizer::load(const fs::path& name_or_path) {
  require(name_or_path == "bytes", "{}: expected the tokenizer \"bytes\"", name_or_path.string());
  return bytes();
}
std::vector<int32_t> Tokenizer::encode(std::string_view text, bool specials) const {
  std::vector<int32_t> ids;
  Encoder(*this).encode(text, specials, ids);
  return ids;
}
std::string Tokenizer::decode(std::span<const int32_t> ids, bool specials) const {
  std::string text;
  for (const int32_t id : ids)
    if (id < 256)
      text.push_back(char(uint8_t(id)));
    else if (id == 256 && specials)
      text += "<|endoftext|>";
  return text;
}
bool Tokenizer::is_bytes() const { return true; }
int64_t Tokenizer::vocab_size() const { return 257; }
int32_t Tokenizer::bos() const { return state_->bos; }
int32_t Tokenizer::eos() const { return state_->eos; }
bool Tokenizer::adds_bos() const { return state_->adds_bos; }
uint64_t Tokenizer::hash() const { return state_->hash; }
void Tokenizer::save(const fs::path&) const {}
Encoder::Encoder(const Tokenizer& t) : tokenizer_(t) {}
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder::~Encoder() = default;
void Encoder::encode(std::string_view text, bool specials, std::vector<int32_t>& out) {
  while (!text.empty()) {
    if (specials && text.starts_with("<|endoftext|>")) {
      out.push_back(256);
      text.remove_prefix(13);
      continue;
    }
    out.push_back(uint8_t(text[0]));
    text.remove_prefix(1);
  }
}
Decoder::Decoder(const Tokenizer& t) : tokenizer_(t) {}

std::string Decoder::push(int32_t id) {
  pending_ += tokenizer_.decode({&id, 1});
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
  if (!pending_.empty()) append_utf8(shown, 0xFFFD);  // one mark for an unfinished character
  pending_.clear();
  at_start_ = true;
  return shown;
}
}  // namespace isobath
