// Queries of some rows over the keys of all: what attention gives those rows when all rows are queries.
#include <numeric>

#include "base/error.h"
#include "base/work.h"
#include "support/attention.h"

namespace isobath {
namespace {

using namespace isobath::testing;

INSTANTIATE_TEST_SUITE_P(OnEachTarget, Attention, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

// Every `step`-th row of each segment from the `first` on.
struct Picked {
  std::vector<int32_t> row, begin{0}, seen;
  Picked(const std::vector<int32_t>& segment_begin, int32_t first, int32_t step) {
    for (size_t i = 0; i + 1 < segment_begin.size(); i++) {
      for (int32_t n = segment_begin[i] + first; n < segment_begin[i + 1]; n += step) {
        row.push_back(n);
        seen.push_back(n - segment_begin[i] + 1);
      }
      begin.push_back(int32_t(row.size()));
    }
  }
};

Buffer columns(const Buffer& from, const std::vector<int32_t>& rows, int64_t first, int64_t count) {
  Buffer to({int64_t(rows.size()), count});
  for (size_t s = 0; s < rows.size(); s++)
    std::copy_n(from.values.data() + rows[s] * from.shape.cols() + first, count, to.values.data() + int64_t(s) * count);
  return to;
}

std::vector<int32_t> every_row(int64_t rows) {
  std::vector<int32_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST_P(Attention, OfSomeRowsOverAllKeysIsThatOfAllRows) {
  const auto begin = begins(kLengths);
  for (const Heads heads : {Heads{1, 1, 1}, Heads{4, 2, 17}, Heads{2, 2, 64}, Heads{5, 1, 67}})
    for (const auto& [first, step] : {std::pair{0, 1}, std::pair{0, 3}, std::pair{1, 8}, std::pair{60, 1}}) {
      SCOPED_TRACE(heads.K * 1000 + first * 100 + step);
      const Buffer qkv = random_qkv(begin.back(), heads), d_all = random_buffer({begin.back(), heads.q_cols()}, 2);
      const Picked picked(begin, first, step);
      const int64_t S = int64_t(picked.row.size()), kv = heads.kv_cols();
      const Buffer q = columns(qkv, picked.row, 0, heads.q_cols());
      const Buffer keys = columns(qkv, every_row(begin.back()), heads.q_cols(), 2 * kv);
      const Output all = forward(qkv, begin, heads);
      Output some{Buffer({S, heads.q_cols()}), Buffer({S, heads.H})};
      attention_over_forward(some.o, some.lse, q, keys, view_of(picked.begin), view_of(begin), view_of(picked.seen),
                             heads);
      expect_same_bits(some.o, columns(all.o, picked.row, 0, heads.q_cols()), "o");
      expect_same_bits(some.lse, columns(all.lse, picked.row, 0, heads.H), "lse");

      // The gradient of all rows when the rows that are no queries get none.
      Buffer d_o({begin.back(), heads.q_cols()}, 0.0f);
      for (const int32_t n : picked.row)
        std::copy_n(d_all.values.data() + n * heads.q_cols(), heads.q_cols(), d_o.values.data() + n * heads.q_cols());
      const Buffer want = backward(d_o, qkv, all, begin, heads);
      Buffer dq({S, heads.q_cols()}), dkv({begin.back(), 2 * kv});
      attention_over_backward(dq, dkv, columns(d_o, picked.row, 0, heads.q_cols()), q, keys, some.o, some.lse,
                              view_of(picked.begin), view_of(begin), view_of(picked.seen), heads);
      const double terms = max_abs(d_all) * (1 + score_terms(qkv, heads)) * std::max(1.0, max_abs(qkv));
      const auto wide = [](const Buffer& b) { return std::vector<double>(b.values.begin(), b.values.end()); };
      const double count = double(heads.K * heads.H / heads.G);
      expect_close(dq.values, wide(columns(want, picked.row, 0, heads.q_cols())), terms, count, "dq");
      expect_close(dkv.values, wide(columns(want, every_row(begin.back()), heads.q_cols(), 2 * kv)), terms, count,
                   "dkv");
    }
}

TEST_P(Attention, OfSomeRowsRunsTheMultiplyAddsThatAreForetold) {
  const auto begin = begins({200});
  const Heads heads{4, 2, 24};
  const Buffer qkv = random_qkv(200, heads);
  for (const auto& [first, step] : {std::pair{0, 1}, std::pair{5, 7}, std::pair{120, 1}}) {
    const Picked picked(begin, first, step);
    const int64_t S = int64_t(picked.row.size());
    const Buffer q = columns(qkv, picked.row, 0, heads.q_cols());
    const Buffer keys = columns(qkv, every_row(200), heads.q_cols(), 2 * heads.kv_cols());
    Output out{Buffer({S, heads.q_cols()}), Buffer({S, heads.H})};
    executed_multiply_adds = 0;
    attention_over_forward(out.o, out.lse, q, keys, view_of(picked.begin), view_of(begin), view_of(picked.seen), heads);
    EXPECT_EQ(executed_multiply_adds, attention_over_forward_multiply_adds(picked.seen, heads));
    Buffer dq(q.shape), dkv(keys.shape);
    executed_multiply_adds = 0;
    attention_over_backward(dq, dkv, out.o, q, keys, out.o, out.lse, view_of(picked.begin), view_of(begin),
                            view_of(picked.seen), heads);
    EXPECT_EQ(executed_multiply_adds, attention_over_backward_multiply_adds(picked.seen, heads));
  }
}

TEST_P(Attention, RefusesQueriesThatSeeNothingOrTooMuch) {
  const Heads heads{2, 1, 8};
  const std::vector<int32_t> q_begin{0, 2}, kv_begin{0, 5};
  const Buffer q = random_buffer({2, 16}, 1), kv = random_buffer({5, 16}, 2);
  Output out{Buffer({2, 16}), Buffer({2, 2})};
  for (const std::vector<int32_t>& seen : {std::vector<int32_t>{0, 1}, {3, 2}, {1, 6}})
    EXPECT_THROW(
        attention_over_forward(out.o, out.lse, q, kv, view_of(q_begin), view_of(kv_begin), view_of(seen), heads),
        Error);
}

}  // namespace
}  // namespace isobath
