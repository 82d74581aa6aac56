#include "text/loader.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "base/rng.h"

namespace isobath {
namespace {

// Place `index` of a permutation of [0, n), without a table: a four-round Feistel network on the next even number of
// bits, walked until it lands inside (Black & Rogaway 2002, "Ciphers with arbitrary finite domains").
int64_t permuted(int64_t index, int64_t n, const Rng& rng, uint64_t pass) {
  const int half = std::max(1, (int(std::bit_width(uint64_t(n - 1))) + 1) / 2);
  const uint64_t mask = (uint64_t(1) << half) - 1;
  uint64_t at = uint64_t(index);
  do {
    uint64_t left = at >> half, right = at & mask;
    for (uint64_t round = 0; round < 4; round++) {
      const uint64_t next = left ^ (rng.words(pass, right * 4 + round)[0] & mask);
      left = right;
      right = next;
    }
    at = left << half | right;
  } while (at >= uint64_t(n));
  return int64_t(at);
}

constexpr uint32_t kOrder = 0, kOffset = 1;  // sub-streams of the data stream

}  // namespace

Loader::Loader(TokenStream stream, const LoaderOptions& options) : stream_(std::move(stream)), options_(options) {
  const int64_t T = options.T, B = options.B, size = stream_.size();
  require(T >= 1 && B >= 1, "loader: {} sequences of {} tokens; both must be at least 1", B, T);
  require(B <= (int64_t(1) << 30) / T, "loader: {} sequences of {} tokens are over 2^30 rows; use a smaller batch", B,
          T);
  require(options.max_documents >= 0, "loader: max_documents is {}; expected 0 (T/64) or more", options.max_documents);
  require(size >= 2, "loader: {} tokens of text, of which none can be predicted; use more text", size);
  options_.max_documents = options_.most_documents();
  if (size > T) windows_ = std::max<int64_t>(1, (size - T) / T);  // leaves room for every offset in [0, T)

  if (by_document()) {
    eval_begin_.push_back(0);
    while (eval_begin_.back() < size - 1) {
      const int64_t begin = eval_begin_.back();
      eval_begin_.push_back(cut_at_documents({begin, std::min(begin + T, size - 1)}).end);
    }
  }
  const size_t rows = size_t(B * T);
  token_.resize(rows + 1);  // a window is read with the target of its last row
  target_.resize(rows);
  position_.resize(rows);
  sequence_.resize(rows);
  const size_t runs = size_t(B * (by_document() ? std::min(T, options_.max_documents) : 1)) + 1;
  capacity_begin_.resize(runs);
  segment_begin_.resize(runs);
  sequence_id_.resize(size_t(B));
}

bool Loader::by_document() const {
  return options_.capacity_scope == Scope::kDocument || options_.attention_scope == Scope::kDocument;
}

Loader::Window Loader::train_window(int64_t index) const {
  const int64_t T = options_.T, pass = index / windows_;
  const int64_t offsets = std::min(T, stream_.size() - windows_ * T);
  const int64_t offset = Rng(options_.seed, Stream::kData, kOffset).below(offsets, uint64_t(pass));
  const int64_t place = permuted(index % windows_, windows_, Rng(options_.seed, Stream::kData, kOrder), uint64_t(pass));
  const int64_t begin = offset + place * T;
  return by_document() ? cut_at_documents({begin, begin + T}) : Window{begin, begin + T};
}

Loader::Count Loader::train_count(int64_t first, int64_t count) const {
  Count sum{0, 0, 0};
  for (int64_t index = first; index < first + count; index++) {
    const Window window = train_window(index);
    sum.rows += window.end - window.begin;
    sum.targets += window.end - window.begin;
    sum.runs++;
    if (options_.capacity_scope == Scope::kDocument)
      for (int64_t d = stream_.document_at(window.begin) + 1; stream_.document_begin(d) < window.end; d++) sum.runs++;
    if (options_.attention_scope == Scope::kSequence) continue;
    for (int64_t d = stream_.document_at(window.begin) + 1; stream_.document_begin(d) <= window.end; d++) sum.targets--;
  }
  return sum;
}

double Loader::share_seen() const {
  return windows_ > 0 ? double(train_count(0, windows_).rows) / double(windows_ * options_.T) : 1;
}

Loader::Window Loader::cut_at_documents(Window window) const {
  const int64_t past = std::min(stream_.document_at(window.begin) + options_.max_documents, stream_.documents());
  return {window.begin, std::min(window.end, stream_.document_begin(past))};
}

const Batch& Loader::train(int64_t first, int64_t count) {
  require(windows_ > 0,
          "loader: {} tokens of training text, expected at least T + 1 = {}; use more text or a smaller T",
          stream_.size(), options_.T + 1);
  return fill(first, count, true, 0);
}

int64_t Loader::eval_sequences() const {
  return by_document() ? int64_t(eval_begin_.size()) - 1 : (stream_.size() - 2 + options_.T) / options_.T;
}

const Batch& Loader::eval(int64_t first, int64_t count, int64_t part) {
  const int64_t all = eval_sequences();
  if (part == 0) part = all;
  require(part <= all && first + count <= part, "loader: evaluation sequences {} to {} of {}, expected at most {}",
          first, first + count, part, all);
  return fill(first, count, false, part);
}

Loader::Window Loader::eval_window(int64_t index) const {
  const int64_t T = options_.T;
  if (by_document()) return {eval_begin_[size_t(index)], eval_begin_[size_t(index + 1)]};
  return {index * T, std::min((index + 1) * T, stream_.size() - 1)};
}

const Batch& Loader::fill(int64_t first, int64_t count, bool training, int64_t part) {
  require(first >= 0 && count >= 1 && count <= options_.B,
          "loader: {} sequences from {}, expected 1 to B = {} from 0 on", count, first, options_.B);
  int64_t rows = 0;
  capacities_ = segments_ = 0;
  for (int64_t b = 0; b < count; b++) {
    const int64_t index = training ? first + b : (first + b) * eval_sequences() / part;
    sequence_id_[size_t(b)] = index;
    rows = append(training ? train_window(index) : eval_window(index), rows, int32_t(b));
  }
  capacity_begin_[size_t(capacities_)] = segment_begin_[size_t(segments_)] = int32_t(rows);
  batch_ = {view_of(token_, rows),
            view_of(target_, rows),
            view_of(position_, rows),
            view_of(capacity_begin_, capacities_ + 1),
            view_of(segment_begin_, segments_ + 1),
            view_of(sequence_, rows),
            view_of(sequence_id_, count)};
  return batch_;
}

// Writes the rows of one sequence from `row` on; returns the next free row.
int64_t Loader::append(Window window, int64_t row, int32_t sequence) {
  const int64_t rows = window.end - window.begin;
  stream_.read(window.begin, {token_.data() + row, size_t(rows + 1)});
  std::copy_n(token_.data() + row + 1, rows, target_.data() + row);
  std::fill_n(sequence_.data() + row, rows, sequence);

  int64_t segment = row;  // where the attention segment of the row began
  capacity_begin_[size_t(capacities_++)] = segment_begin_[size_t(segments_++)] = int32_t(row);
  if (by_document()) {
    for (int64_t d = stream_.document_at(window.begin) + 1; stream_.document_begin(d) <= window.end; d++) {
      const int64_t begin = row + stream_.document_begin(d) - window.begin;  // first row of document d
      const bool attention = options_.attention_scope == Scope::kDocument;
      if (attention) target_[size_t(begin - 1)] = -1;
      if (begin == row + rows) break;
      if (options_.capacity_scope == Scope::kDocument) capacity_begin_[size_t(capacities_++)] = int32_t(begin);
      if (!attention) continue;
      for (int64_t r = segment; r < begin; r++) position_[size_t(r)] = int32_t(r - segment);
      segment_begin_[size_t(segments_++)] = int32_t(begin);
      segment = begin;
    }
  }
  for (int64_t r = segment; r < row + rows; r++) position_[size_t(r)] = int32_t(r - segment);
  return row + rows;
}

int64_t Loader::scored_targets(const Batch& batch) {
  return std::count_if(batch.target.data, batch.target.data + batch.target.numel(), [](int32_t t) { return t >= 0; });
}

}  // namespace isobath
