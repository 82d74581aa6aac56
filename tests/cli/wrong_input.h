// What tests of refusals share: the one line of error, a run that is to be refused, a run that is damaged.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "cli_support.h"

namespace isobath::testing {

// The words that the one line of error must hold.
using Words = std::vector<std::string>;

inline void expect_failure(const Ended& ended, int code, const Words& words) {
  EXPECT_EQ(ended.signal, 0);
  EXPECT_EQ(ended.code, code) << ended.error;
  const std::vector<std::string> lines = lines_of(ended.error);
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(lines.size() == 1 || code == 1) << ended.error;  // during work progress goes there too
  EXPECT_TRUE(lines.back().starts_with("error: ")) << lines.back();
  EXPECT_GT(lines.back().size(), 20u) << lines.back();
  for (const std::string& word : words) expect_in(lines.back(), word);
}

class WrongInput : public ::testing::Test {
 protected:
  // The run is refused before it has made its folder.
  void refused(const Arguments& more, const Words& words) {
    SCOPED_TRACE(::testing::PrintToString(more));
    expect_failure(run(work_.train(more)), 2, words);
    EXPECT_FALSE(fs::exists(work_.out));
  }
  void refused_config(const std::string& toml, const Words& words) {
    SCOPED_TRACE(toml);
    const std::string config = work_.dir.write("wrong.toml", toml).string();
    expect_failure(run({"train", config, "--path", work_.text, "--out", work_.out, "--peak", "100"}), 2, words);
    EXPECT_FALSE(fs::exists(work_.out));
  }
  Workplace work_;
};

// Trained once for all tests; each works on a copy.
class WrongModel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    trained_ = std::make_unique<Workplace>();
    output_of(trained_->train({"--save-every", "2", "--keep", "5"}));
    Arguments other = trained_->train({"--causal", "none"});
    other[3] = (trained_->dir / "none").string();
    output_of(other);
  }
  static void TearDownTestSuite() { trained_.reset(); }
  WrongModel() {
    fs::copy(trained_->dir.path(), dir_.path(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }

  void wrong(const Arguments& arguments, const Words& words, int code = 2) {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    expect_failure(run(arguments), code, words);
  }
  // Neither resuming nor generating takes the damaged checkpoint, and it is left as it is.
  void damaged(const std::string& file, const std::string& bytes, const Words& words, bool generates = false) {
    SCOPED_TRACE(file);
    const fs::path path = run_ / "step-00000004" / file;
    const std::string good = read_file(path);
    bytes.empty() ? void(fs::remove(path)) : replace_file(path, bytes);
    expect_failure(run({"train", "--resume", run_.string(), "--peak", "100"}), 2, words);
    const Ended ended = run({"generate", run_.string(), "--prompt", "the", "--max-tokens", "2", "--quiet"});
    if (generates)
      EXPECT_EQ(ended.code, 0) << ended.error;
    else
      expect_failure(ended, 2, words);
    EXPECT_EQ(latest_checkpoint(run_)->step, 4);
    replace_file(path, good);
  }
  inline static std::unique_ptr<Workplace> trained_;
  const TempDir dir_;
  const fs::path run_ = dir_ / "run";
  const Arguments resume_{"train", "--resume", run_.string(), "--peak", "100"};
  Arguments resume(const Arguments& more) const {
    Arguments all = resume_;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};
}  // namespace isobath::testing
