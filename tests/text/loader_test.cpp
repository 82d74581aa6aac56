#include "text/loader.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"

namespace isobath {
namespace {

constexpr int32_t kEos = 1 << 20;

// Documents of the given lengths (eos not counted), tokens 0, 1, 2, ... over the whole stream.
TokenStream stream(const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int32_t>> documents;
  int32_t next = 0;
  for (const int64_t n : lengths) {
    documents.emplace_back();
    for (int64_t i = 0; i < n; i++) documents.back().push_back(next++);
    next++;  // the place of the eos, so that a token is its own position
  }
  return stream_of(documents, kEos);
}

std::vector<int32_t> values(CI32 view) { return {view.data, view.data + view.numel()}; }

struct Rows {
  std::vector<int32_t> token, target, position, sequence, capacity_begin, segment_begin;
  std::vector<int64_t> sequence_id;
  explicit Rows(const Batch& b)
      : token(values(b.token)),
        target(values(b.target)),
        position(values(b.position)),
        sequence(values(b.sequence)),
        capacity_begin(values(b.capacity_begin)),
        segment_begin(values(b.segment_begin)),
        sequence_id(b.sequence_id.data, b.sequence_id.data + b.sequence_id.numel()) {}
  bool operator==(const Rows&) const = default;
};

std::vector<int32_t> first_tokens(Loader& loader, int64_t first, int64_t count) {
  std::vector<int32_t> begins;
  for (int64_t i = 0; i < count; i++) begins.push_back(loader.train(first + i, 1).token[0]);
  return begins;
}

TEST(Loader, SequencesAreConsecutiveTokens) {
  Loader loader(stream({999}), {.T = 7, .B = 3, .seed = 5});
  const Batch& b = loader.train(0, 3);
  ASSERT_EQ(b.rows(), 21);
  for (int64_t i = 0; i < 21; i++) {
    EXPECT_EQ(b.position[i], i % 7);
    EXPECT_EQ(b.sequence[i], i / 7);
    EXPECT_EQ(b.target[i], b.token[i] == 998 ? kEos : b.token[i] + 1);
    if (i % 7 != 0) {
      EXPECT_EQ(b.token[i], b.token[i - 1] + 1);
    }
  }
  EXPECT_EQ(values(b.segment_begin), (std::vector<int32_t>{0, 7, 14, 21}));
  EXPECT_EQ(values(b.capacity_begin), (std::vector<int32_t>{0, 7, 14, 21}));
  EXPECT_EQ(Loader::scored_targets(b), 21);
}

TEST(Loader, IsAPureFunctionOfSeedAndIndex) {
  const TokenStream text = stream({400, 300, 77});
  const LoaderOptions options{.T = 16, .B = 4, .seed = 9};
  Loader one(text, options), other(text, options);
  std::vector<Rows> want;
  for (int64_t i = 0; i < 200; i++) want.emplace_back(one.train(i, 1));
  for (const int64_t i : {150, 3, 199, 0, 48}) EXPECT_EQ(Rows(other.train(i, 1)), want[size_t(i)]) << i;

  const Rows four(other.train(60, 4));  // the same sequences in a batch
  for (int64_t b = 0; b < 4; b++)
    for (int64_t i = 0; i < 16; i++) EXPECT_EQ(four.token[size_t(b * 16 + i)], want[size_t(60 + b)].token[size_t(i)]);
  EXPECT_EQ(four.sequence_id, (std::vector<int64_t>{60, 61, 62, 63}));

  Loader reseeded(text, {.T = 16, .B = 4, .seed = 10});
  EXPECT_NE(first_tokens(reseeded, 0, 20), first_tokens(one, 0, 20));
}

TEST(Loader, APassVisitsEachWindowOnce) {
  for (const int64_t size : {17, 33, 100, 1000, 4099}) {
    SCOPED_TRACE(size);
    Loader loader(stream({size - 1}), {.T = 16, .B = 1, .seed = 3});
    const int64_t windows = loader.sequences_per_pass();
    EXPECT_GE(windows, std::max<int64_t>(1, size / 16 - 2));
    std::set<std::vector<int32_t>> orders;
    std::set<int32_t> offsets;
    for (int64_t pass = 0; pass < 4; pass++) {
      const auto begins = first_tokens(loader, pass * windows, windows);
      const std::set<int32_t> distinct(begins.begin(), begins.end());
      ASSERT_EQ(int64_t(distinct.size()), windows);
      const int32_t offset = *distinct.begin();
      EXPECT_LT(offset, 16);
      for (const int32_t b : begins) {
        EXPECT_EQ((b - offset) % 16, 0);
        EXPECT_LE(b + 16, size - 1);  // the target of the last row exists
      }
      orders.insert(begins);
      offsets.insert(offset);
    }
    if (windows > 4) {
      EXPECT_EQ(orders.size(), 4u);
      EXPECT_GT(offsets.size(), 1u);
    }
  }
}

TEST(Loader, DocumentsAreSegments) {
  // Tokens: 0 1 2 eos | 4 eos | 6 7 8 9 10 eos
  const TokenStream text = stream({3, 1, 5});
  Loader loader(
      text,
      {.T = 11, .B = 1, .capacity_scope = Scope::kDocument, .attention_scope = Scope::kDocument, .max_documents = 8});
  const Rows rows(loader.train(0, 1));
  EXPECT_EQ(rows.token, (std::vector<int32_t>{0, 1, 2, kEos, 4, kEos, 6, 7, 8, 9, 10}));
  EXPECT_EQ(rows.target, (std::vector<int32_t>{1, 2, kEos, -1, kEos, -1, 7, 8, 9, 10, kEos}));
  EXPECT_EQ(rows.position, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4}));
  EXPECT_EQ(rows.segment_begin, (std::vector<int32_t>{0, 4, 6, 11}));
  EXPECT_EQ(rows.capacity_begin, rows.segment_begin);
  EXPECT_EQ(Loader::scored_targets(loader.train(0, 1)), 9);
}

TEST(Loader, ScopesAreIndependent) {
  const TokenStream text = stream({3, 1, 5});
  Loader capacity(text, {.T = 11, .B = 1, .capacity_scope = Scope::kDocument, .max_documents = 8});
  const Rows c(capacity.train(0, 1));
  EXPECT_EQ(c.capacity_begin, (std::vector<int32_t>{0, 4, 6, 11}));
  EXPECT_EQ(c.segment_begin, (std::vector<int32_t>{0, 11}));
  EXPECT_EQ(c.position.back(), 10);
  EXPECT_EQ(c.target[3], 4);  // the boundary is an ordinary token

  Loader attention(text, {.T = 11, .B = 1, .attention_scope = Scope::kDocument, .max_documents = 8});
  const Rows a(attention.train(0, 1));
  EXPECT_EQ(a.capacity_begin, (std::vector<int32_t>{0, 11}));
  EXPECT_EQ(a.segment_begin, (std::vector<int32_t>{0, 4, 6, 11}));
  EXPECT_EQ(a.target[3], -1);
}

TEST(Loader, AWindowEndsAtTheLastDocumentThatFits) {
  const TokenStream text = stream({3, 1, 5, 40});
  Loader loader(
      text,
      {.T = 11, .B = 2, .capacity_scope = Scope::kDocument, .attention_scope = Scope::kDocument, .max_documents = 2});
  const Rows rows(loader.eval(0, 2));  // ragged: documents 0 and 1, then 2 and 5 tokens of 3
  EXPECT_EQ(rows.segment_begin, (std::vector<int32_t>{0, 4, 6, 12, 17}));
  EXPECT_EQ(rows.sequence, (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(rows.target[5], -1);
  EXPECT_EQ(rows.target[11], -1);
  for (int64_t i = 0; i < 30; i++) {
    const Batch& b = loader.train(i, 1);
    EXPECT_LE(b.segment_begin.numel(), 3);
    EXPECT_LE(b.rows(), 11);
    EXPECT_GE(b.rows(), 1);
  }
}

TEST(Loader, CountsWithoutMaking) {
  const TokenStream text = stream({3, 1, 5, 40, 7, 7, 90, 2, 2, 60});
  for (const Scope capacity : {Scope::kSequence, Scope::kDocument})
    for (const Scope attention : {Scope::kSequence, Scope::kDocument}) {
      Loader loader(text,
                    {.T = 11, .B = 5, .capacity_scope = capacity, .attention_scope = attention, .max_documents = 2});
      int64_t rows = 0;
      for (int64_t first = 0; first < 60; first += 5) {
        const Batch& batch = loader.train(first, 5);
        const Loader::Count count = loader.train_count(first, 5);
        EXPECT_EQ(count.rows, batch.rows());
        EXPECT_EQ(count.targets, Loader::scored_targets(batch));
        EXPECT_EQ(count.runs, batch.capacity_begin.numel() - 1);
        rows += batch.rows();
      }
      EXPECT_EQ(loader.train_count(0, 60).rows, rows);
      const bool whole = capacity == Scope::kSequence && attention == Scope::kSequence;
      EXPECT_EQ(loader.share_seen() == 1, whole);
    }
}

// Every token but the first is a target once; with documents, but the first of each.
void expect_each_token_scored_once(const TokenStream& text, LoaderOptions options) {
  Loader loader(text, options);
  std::map<int32_t, int> scored;
  int64_t total = 0;
  for (int64_t i = 0; i < loader.eval_sequences(); i += options.B) {
    const Batch& b = loader.eval(i, std::min(options.B, loader.eval_sequences() - i));
    total += Loader::scored_targets(b);
    for (int64_t r = 0; r < b.rows(); r++)
      if (b.target[r] >= 0 && b.target[r] != kEos) scored[b.target[r]]++;
  }
  const bool documents = options.attention_scope == Scope::kDocument;
  EXPECT_EQ(total, text.size() - (documents ? text.documents() : 1));
  std::vector<int32_t> all(size_t(text.size()));
  text.read(0, all);
  for (int64_t d = 0, i = 0; i < text.size(); i++) {
    if (i >= text.document_begin(d + 1)) d++;
    if (all[size_t(i)] == kEos) continue;
    const bool first = documents ? i == text.document_begin(d) : i == 0;
    EXPECT_EQ(scored[all[size_t(i)]], first ? 0 : 1) << i;
  }
}

TEST(Loader, EvaluationScoresEachTokenOnce) {
  for (const int64_t T : {1, 2, 7, 16, 500}) {
    for (const int64_t B : {1, 16}) {
      SCOPED_TRACE(testing::Message() << "T " << T << " B " << B);
      const TokenStream text = stream({30, 1, 2, 50, 1, 1, 1, 20});
      expect_each_token_scored_once(text, {.T = T, .B = B});
      expect_each_token_scored_once(
          text, {.T = T, .B = B, .capacity_scope = Scope::kDocument, .attention_scope = Scope::kDocument});
      expect_each_token_scored_once(text, {.T = T, .B = B, .attention_scope = Scope::kDocument, .max_documents = 3});
    }
  }
}

TEST(Loader, EvaluationHasTheSameSequencesInAnyBatch) {
  const TokenStream text = stream({30, 1, 2, 50, 20});
  Loader one(text, {.T = 8, .B = 1}), many(text, {.T = 8, .B = 16});
  const int64_t n = one.eval_sequences();
  ASSERT_EQ(n, (text.size() - 1 + 7) / 8);
  const Rows all(many.eval(0, std::min<int64_t>(16, n)));
  size_t row = 0;
  for (int64_t i = 0; i < std::min<int64_t>(16, n); i++) {
    const Rows alone(one.eval(i, 1));
    EXPECT_EQ(alone.position.front(), 0);
    for (size_t r = 0; r < alone.token.size(); r++, row++) {
      EXPECT_EQ(all.token[row], alone.token[r]);
      EXPECT_EQ(all.target[row], alone.target[r]);
      EXPECT_EQ(all.position[row], alone.position[r]);
    }
  }
}

TEST(Loader, APartOfTheEvaluationIsSpreadOverTheText) {
  const TokenStream text = stream({30, 1, 2, 50, 20});
  for (const Scope scope : {Scope::kSequence, Scope::kDocument}) {
    Loader loader(text, {.T = 8, .B = 16, .capacity_scope = scope, .attention_scope = scope, .max_documents = 1});
    const int64_t n = loader.eval_sequences();
    for (const int64_t part : {int64_t{1}, int64_t{3}, n - 1, n}) {
      SCOPED_TRACE(part);
      for (int64_t i = 0; i < part; i++) {
        const int64_t index = i * n / part;
        const Rows found(loader.eval(i, 1, part));
        EXPECT_EQ(loader.eval(i, 1, part).sequence_id[0], index);
        const Rows want(loader.eval(index, 1));
        EXPECT_EQ(found.token, want.token);
        EXPECT_EQ(found.target, want.target);
      }
    }
    EXPECT_THROW(loader.eval(0, 1, n + 1), Error);
    EXPECT_THROW(loader.eval(2, 2, 3), Error);
  }
}

TEST(Loader, RefusesWhatItCannotDo) {
  EXPECT_THROW(Loader(TokenStream(), {}), Error);
  EXPECT_THROW(Loader(stream({5}), {.T = 0}), Error);
  EXPECT_THROW(Loader(stream({5}), {.T = int64_t(1) << 40, .B = 1 << 20}), Error);
  Loader small(stream({5}), {.T = 6, .B = 2});
  EXPECT_THROW(small.train(0, 1), Error);  // six tokens: the last would have no target
  EXPECT_NO_THROW(small.eval(0, 1));
  EXPECT_THROW(small.eval(1, 1), Error);
  Loader exact(stream({6}), {.T = 6, .B = 2});
  EXPECT_NO_THROW(exact.train(0, 2));
  EXPECT_THROW(exact.train(0, 3), Error);
  EXPECT_THROW(exact.train(-1, 1), Error);
}

}  // namespace
}  // namespace isobath
