// `isobath inspect` of models with experts: the terminal's text, the JSON lists, and the page in a real browser.
#include <gtest/gtest.h>

#include "browser.h"

namespace isobath {
namespace {

using namespace testing;
using json = nlohmann::json;

const std::string kText = "the pilot marks the deep line.";

struct Kind {
  const char* name;
  Arguments more;
  bool routed = false;
};
const Kind kKinds[] = {
    {"integrated", {"--topology", "dense", "--experts", "3", "--experts-per-token", "1", "--no-ops", "2"}},
    {"two", {"--topology", "dense", "--experts", "12"}},
    {"choice", {"--topology", "dense", "--experts", "4", "--experts-choice", "expert", "--experts-capacity", "0.3"}},
    {"staged", {"--experts", "3", "--experts-per-token", "1"}, true},
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class InspectExperts : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { output_of(work_.train(GetParam().more)); }
  std::string inspect(const Arguments& more) const {
    Arguments all{"inspect", work_.out, "--text", kText};
    all.insert(all.end(), more.begin(), more.end());
    return output_of(all);
  }
  const Workplace work_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, InspectExperts, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(InspectExperts, lists_say_who_was_given_to_whom) {
  for (const char* by : {"causal", "topk"}) {
    const json all = json::parse(inspect({"--json", "--by", by}));
    EXPECT_EQ(all["depth"], GetParam().routed ? "routed" : "mlps");
    ASSERT_EQ(all["experts"].size(), 4u);
    std::vector<int64_t> mlps(kText.size(), 0);
    for (const json& block : all["experts"]) {
      const int64_t experts = int64_t(block["shares"].size());
      ASSERT_EQ(block["given"].size(), kText.size());
      std::vector<double> rows(size_t(experts), 0);
      int64_t no_ops = 0, came = 0;
      for (size_t n = 0; n < kText.size(); n++) {
        const json& given = block["given"][n];
        bool routed = true;
        for (const json& layer : all["layers"])
          if (layer["block"] == block["block"]) routed = layer["routed"][n] == 1;
        EXPECT_EQ(given.is_null(), !routed);
        came += routed;
        for (const int64_t output : given) output < experts ? rows[size_t(output)]++, mlps[n]++ : no_ops++;
      }
      EXPECT_EQ(block["rows"], came);
      EXPECT_EQ(block["no_ops"], no_ops);
      for (size_t e = 0; e < size_t(experts); e++)
        EXPECT_NEAR(block["shares"][e], came ? rows[e] / double(came) : 0, 1e-9);
    }
    if (GetParam().routed) continue;
    for (const json& piece : all["pieces"]) EXPECT_EQ(piece["depth"], mlps[piece["first"]]);
  }
}

TEST_P(InspectExperts, the_terminal_counts_mlps_where_nothing_is_routed) {
  const std::string text = inspect({"--color", "never"});
  expect_in(text, GetParam().routed ? "routed blocks that a character went through" : "MLPs that ran for a character");
  expect_in(text, "block   3  experts ");
  EXPECT_EQ(text.find("router weights") != std::string::npos, GetParam().routed);
  if (GetParam().name == std::string("two")) {
    expect_in(text, "\n" + kText + "\n" + std::string(kText.size(), '8') + "\n");
    expect_in(text, "every token got equally many");
  }
  // Where all tokens are alike there is nothing to colour.
  const bool coloured = inspect({"--color", "always"}).find("\033[48;5;") != std::string::npos;
  EXPECT_EQ(coloured, GetParam().name != std::string("two"));
}

TEST_P(InspectExperts, a_browser_draws_the_page_without_errors) {
  const std::string page = (work_.dir / "page.html").string();
  inspect({"--html", page});
  const std::string written = read_file(page);
  expect_in(written, "data-name=\"routing-map\"");
  if (const std::string missing = missing_to_draw(written); !missing.empty()) GTEST_SKIP() << missing;
  const std::string dom = drawn(page, work_.dir);
  const int64_t charts = count_of(written, "class=\"chart\"");
  EXPECT_GE(charts, 1);
  EXPECT_EQ(count_of(dom, "<svg "), charts) << "a figure was not drawn";
  EXPECT_GE(count_of(dom, "#4c78a8"), 2) << "the first expert's colour, in the legend and in the map";
}

}  // namespace
}  // namespace isobath
