#include "text/token_stream.h"

#include <algorithm>

#include "base/error.h"

namespace isobath {

void TokenArray::read(int64_t begin, std::span<int32_t> out) const {
  const int64_t n = int64_t(out.size());
  if (width == 4) {
    std::memcpy(out.data(), at + begin * 4, out.size_bytes());
    return;
  }
  const TokenArray from = slice(begin, n);
  for (int64_t i = 0; i < n; i++) out[size_t(i)] = from.load<uint16_t>(i);
}

TokenStream::TokenStream() : TokenStream(StreamBuilder(-1).finish(0)) {}

int64_t TokenStream::size() const { return state_->size(); }
int64_t TokenStream::documents() const { return int64_t(state_->document_begin.size()) - 1; }
int64_t TokenStream::document_begin(int64_t document) const { return state_->document_begin[size_t(document)]; }
int64_t TokenStream::text_bytes() const { return state_->text_bytes; }

int64_t TokenStream::document_at(int64_t token) const {
  const auto& begin = state_->document_begin;
  return std::upper_bound(begin.begin(), begin.end(), token) - begin.begin() - 1;
}

void TokenStream::read(int64_t begin, std::span<int32_t> out) const {
  const int64_t end = begin + int64_t(out.size());
  require(begin >= 0 && end <= size(), "token stream: tokens [{}, {}) of {}", begin, end, size());
  const auto& runs = state_->runs;
  auto run = std::upper_bound(runs.begin(), runs.end(), begin, [](int64_t at, const auto& r) { return at < r.begin; });
  if (run != runs.begin()) --run;
  for (; begin < end; ++run) {
    const int64_t skip = begin - run->begin, count = std::min(run->tokens.size - skip, end - begin);
    run->tokens.read(skip, out.first(size_t(count)));
    out = out.subspan(size_t(count));
    begin += count;
  }
}

StreamBuilder::StreamBuilder(int32_t eos) : state_(std::make_shared<TokenStream::State>()) {
  state_->document_begin.push_back(0);
  state_->eos = eos;
}

void StreamBuilder::add(const TokenSourcePtr& source, int64_t begin, int64_t end) {
  if (state_->sources.empty() || state_->sources.back() != source) state_->sources.push_back(source);
  const bool closed = end < source->tokens.size && source->tokens[end] == state_->eos;
  append(source->tokens.slice(begin, end - begin + closed));
  if (!closed) append({reinterpret_cast<const std::byte*>(&state_->eos), 4, 1});
  const auto& last = state_->runs.back();
  state_->document_begin.push_back(last.begin + last.tokens.size);
}

void StreamBuilder::append(const TokenArray& tokens) {
  auto& runs = state_->runs;
  if (tokens.size == 0) return;
  if (runs.empty()) return runs.push_back({tokens, 0});
  auto& last = runs.back();
  if (last.tokens.width == tokens.width && last.tokens.at + last.tokens.size * last.tokens.width == tokens.at)
    last.tokens.size += tokens.size;  // neighbours in one source stay one run
  else
    runs.push_back({tokens, last.begin + last.tokens.size});
}

TokenStream StreamBuilder::finish(int64_t text_bytes) {
  state_->text_bytes = text_bytes;
  return TokenStream(std::move(state_));
}

TokenStream stream_of(std::span<const std::vector<int32_t>> documents, int32_t eos) {
  const auto source = std::make_shared<TokenSource>();
  source->tokens.width = 4;
  for (const auto& ids : documents) {
    source->append(ids);
    source->end_document(eos);
  }
  StreamBuilder builder(eos);
  for (const auto& d : source->documents) builder.add(source, d.begin, d.end);
  return builder.finish(0);
}

}  // namespace isobath
