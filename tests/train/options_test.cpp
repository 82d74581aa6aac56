#include "train/options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "train_support.h"

namespace isobath {
namespace {

using testing::error_of;
using testing::expect_in;
using testing::TempDir;

RunConfig read(const std::string& text) {
  const TempDir dir;
  RunConfig c;
  read_toml(dir.write("run.toml", text), c);
  return c;
}
std::string refusal(const std::string& text) {
  const Error error = error_of([&] { read(text); });
  EXPECT_EQ(error.fault(), Fault::kInput);
  EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  return error.what();
}

TEST(ReadToml, every_type) {
  const RunConfig c = read(
      "# whole, real, yes and no, a word, text, lists\n"
      "[model]\nhidden_size = 48\nrope_theta = 5e5\nrms_norm_eps = 1\ntie_word_embeddings = true\n"
      "[routing]\ntopology = \"joint\"\ngate = \"tanh\"\ncausal = \"predictor\"\nrouter = \"learned\"\n"
      "blocks = [1, 2]\ncapacity = [1, 0.5, 0.25, 0.125]\ncapacity_scope = \"document\"\n"
      "[data]\npath = \"a b.txt\"\nbatch = 0x10\n"
      "[train]\nseed = 7\nflops = 1e15\nclip = 2\n");
  EXPECT_EQ(c.model.hidden_size, 48);
  EXPECT_EQ(c.model.rope_theta, 5e5);
  EXPECT_EQ(c.model.rms_norm_eps, 1);
  EXPECT_TRUE(c.model.tie_word_embeddings);
  EXPECT_EQ(c.model.routing.topology, Topology::kJoint);
  EXPECT_EQ(c.model.routing.gate, Gate::kTanh);
  EXPECT_EQ(c.model.routing.causal, Causal::kPredictor);
  EXPECT_EQ(c.model.routing.capacity_scope, Scope::kDocument);
  EXPECT_EQ(c.model.routing.attention_scope, Scope::kSequence);
  EXPECT_EQ(c.model.routing.blocks, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(c.model.routing.capacity, (std::vector<double>{1, 0.5, 0.25, 0.125}));
  EXPECT_EQ(c.data.path, "a b.txt");
  EXPECT_EQ(c.data.batch, 16);
  EXPECT_EQ(c.train.seed, 7u);
  EXPECT_EQ(c.train.flops, 1e15);
  EXPECT_EQ(c.train.clip, 2);
  EXPECT_EQ(read("[routing]\ncapacity = 0.5\n").model.routing.capacity, std::vector<double>{0.5});
  EXPECT_EQ(read("[routing]\ncapacity = 1\nblocks = 3\n").model.routing.blocks, std::vector<int64_t>{3});
  EXPECT_EQ(options_to_json(read("")), options_to_json(RunConfig{}));
}

TEST(ReadToml, names_file_line_and_key_of_what_is_wrong) {
  const auto wrong = [](const std::string& text, const std::string& place, const std::string& expected) {
    const std::string message = refusal(text);
    expect_in(message, "run.toml:" + place);
    expect_in(message, expected);
  };
  wrong("[model]\n\nhiden_size = 3\n", "3: unknown key model.hiden_size", "--help");
  wrong("[model]\n[modle]\nhidden_size = 3\n", "3: unknown key modle.hidden_size", "--help");
  wrong("[train]\nhidden_size = 3\n", "2: unknown key train.hidden_size", "--help");
  wrong("\nhidden_size = 3\n", "2: hidden_size stands outside a section", "[model]");
  wrong("[model]\nhidden_size = 3.5\n", "2: model.hidden_size is 3.5", "a whole number");
  wrong("[model]\nhidden_size = \"three\"\n", "2: model.hidden_size is 'three'", "a whole number");
  wrong("[model]\nhidden_size = true\n", "2: model.hidden_size", "a whole number");
  wrong("[model]\nhidden_size = [3]\n", "2: model.hidden_size", "a whole number");
  wrong("[model]\nrope_theta = \"x\"\n", "2: model.rope_theta", "a number");
  wrong("[model]\nrope_theta = true\n", "2: model.rope_theta", "a number");
  wrong("[model]\ntie_word_embeddings = 1\n", "2: model.tie_word_embeddings", "true or false");
  wrong("[routing]\ngate = \"relu\"\n", "2: routing.gate is 'relu'", "one of raw, sigmoid, tanh");
  wrong("[routing]\ngate = 1\n", "2: routing.gate", "one of raw, sigmoid, tanh");
  wrong("[routing]\ncapacity = [0.1,\n\"x\"]\n", "2: routing.capacity", "a number");
  wrong("[routing]\nblocks = [1, 2.5]\n", "2: routing.blocks", "a whole number");
  wrong("[data]\npath = 3\n", "2: data.path", "text in quotes");
  wrong("[train]\nseed = -1\n", "2: train.seed", "0 or more");
  wrong("[train]\n\n\nsteps = \n", "4: ", "");
  wrong("[train]\nsteps = 3\nsteps = 4\n", "3: ", "");
  wrong("[train\n", "1: ", "");
}

TEST(ReadToml, a_missing_file) {
  RunConfig c;
  expect_in(error_of([&] { read_toml("no/such.toml", c); }).what(), "no/such.toml");
}

TEST(OptionsJson, round_trip_of_values_unlike_the_defaults) {
  RunConfig c;
  int64_t n = 3;
  for_each_option(c, [&](const char*, const char*, auto& value, auto) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, bool>)
      value = !value;
    else if constexpr (std::is_enum_v<T>)
      value = T(kNames<T>.size() - 1);
    else if constexpr (std::is_arithmetic_v<T>)
      value = T(double(n++) + (std::is_floating_point_v<T> ? 1.0 / 3 : 0));
    else if constexpr (std::is_same_v<T, std::string>)
      value = "text " + std::to_string(n++);
    else
      value = {typename T::value_type(n++), typename T::value_type(n++)};
  });
  c.train.seed = std::numeric_limits<uint64_t>::max();
  const nlohmann::json stored = nlohmann::json::parse(options_to_json(c).dump());
  RunConfig back;
  options_from_json(stored, back);
  EXPECT_EQ(options_to_json(back), options_to_json(c));
  EXPECT_EQ(back.train.seed, c.train.seed);
  EXPECT_EQ(back.train.beta1, c.train.beta1);
}

TEST(OptionsJson, damaged_options_are_refused) {
  const nlohmann::json good = options_to_json(RunConfig{});
  RunConfig c;
  for (const char* section : {"model", "routing", "experts", "data", "train"})
    for (const auto& [key, value] : good[section].items()) {
      nlohmann::json bad = good;
      bad[section][key] = nlohmann::json::object();
      EXPECT_ANY_THROW(options_from_json(bad, c)) << key;
    }
  nlohmann::json before_experts = good;  // files of versions that had none are whole
  before_experts.erase("experts");
  options_from_json(before_experts, c);
  EXPECT_EQ(c.model.experts.experts, 0);
  nlohmann::json word = good;
  word["routing"]["gate"] = "relu";
  expect_in(error_of([&] { options_from_json(word, c); }).what(), "routing.gate is \"relu\"");
  nlohmann::json cut = good;
  cut.erase("train");
  EXPECT_ANY_THROW(options_from_json(cut, c));
}

TEST(OptionsJson, of_an_earlier_version_lack_options_which_keep_their_defaults) {
  nlohmann::json earlier = options_to_json(RunConfig{});
  earlier["model"]["hidden_size"] = 48;
  earlier["model"].erase("rope_theta");
  RunConfig c;
  options_from_json(earlier, c);
  EXPECT_EQ(c.model.hidden_size, 48);
  EXPECT_EQ(c.model.rope_theta, RunConfig{}.model.rope_theta);
}

TEST(OptionsJson, of_a_later_version_are_refused) {
  nlohmann::json later = options_to_json(RunConfig{});
  later["train"]["warp"] = 9;
  RunConfig c;
  expect_in(error_of([&] { options_from_json(later, c); }).what(), "not known to this version");
}

TEST(CheckUnused, of_a_run) {
  const auto message = [](const std::function<void(RunConfig&)>& change) {
    RunConfig c;
    c.data.context = 64;
    change(c);
    try {
      check_unused(c);
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kInput);
      return std::string(error.what());
    }
    return std::string("fine");
  };
  const auto refuses = [&](const char* expected, const std::function<void(RunConfig&)>& change) {
    expect_in(message(change), expected);
  };
  const auto accepts = [&](const std::function<void(RunConfig&)>& change) { EXPECT_EQ(message(change), "fine"); };
  refuses("routing.router_seed = 5", [](auto& c) { c.model.routing.router_seed = 5; });
  refuses("set attention_scope = document", [](auto& c) { c.data.max_documents = 4; });
  accepts([](auto& c) {
    c.data.max_documents = 4;
    c.model.routing.capacity_scope = Scope::kDocument;
  });
  const auto no_op_capacity = [](double share) {
    return [share](RunConfig& c) {
      c.model.experts = {.experts = 3, .per_token = 1, .no_ops = 1, .no_op_capacity = share};
    };
  };
  refuses("experts.no_op_capacity = 0.015 of 64 tokens", no_op_capacity(0.015));
  refuses("set at least 0.0157,", no_op_capacity(0.015));
  accepts(no_op_capacity(0.0157));

  refuses("train.capacity_anneal = 0.5", [](auto& c) {
    c.train.capacity_anneal = 0.5;
    c.model.routing.capacity = {1};
  });
  accepts([](auto& c) {
    c.train.capacity_anneal = 0.5;
    c.model.routing.capacity = {1, 0.5};
  });
  accepts([](auto& c) {
    c.train.capacity_anneal = 0.5;
    c.model.routing.capacity = {1};
    c.model.routing.capacity_schedule = CapacitySchedule::kLinear;
    c.model.routing.capacity_last = 0.5;
  });
  accepts([](auto& c) {  // what it says is of the routed variant of the same file
    c.train.capacity_anneal = 0.5;
    c.model.routing.capacity = {1};
    c.model.routing.topology = Topology::kDense;
  });
}

TEST(CheckOptions, ranges) {
  RunConfig good;
  good.data.path = "text.txt";
  good.train.steps = 5;
  check_options(good);
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto wrong = [&](const char* expected, const std::function<void(RunConfig&)>& change) {
    RunConfig c = good;
    change(c);
    const Error error = error_of([&] { check_options(c); });
    EXPECT_EQ(error.fault(), Fault::kInput);
    expect_in(error.what(), expected);
  };
  wrong("data.path is missing", [](auto& c) { c.data.path = ""; });
  wrong("data.context is 0, expected 1", [](auto& c) { c.data.context = 0; });
  wrong("data.context is 16777216, expected 1", [](auto& c) { c.data.context = 1 << 24; });
  wrong("data.batch is 0, expected 1", [](auto& c) { c.data.batch = 0; });
  wrong("data.batch is 1073741824, expected 1 to 4194304", [](auto& c) { c.data.batch = 1 << 30; });
  wrong("data.micro_batch is 17, expected 0 to batch (16)", [](auto& c) { c.data.micro_batch = 17; });
  wrong("data.micro_batch is -1", [](auto& c) { c.data.micro_batch = -1; });
  wrong("data.max_documents is -1", [](auto& c) { c.data.max_documents = -1; });
  wrong("found 0 budgets, expected exactly one of --steps, --tokens, --flops", [](auto& c) { c.train.steps = 0; });
  wrong("found 2 budgets", [](auto& c) { c.train.tokens = 5; });
  wrong("found 3 budgets", [](auto& c) { c.train.tokens = c.train.flops = 5; });
  wrong("budget is negative", [](auto& c) { c.train.tokens = -5; });
  wrong("train.flops is nan", [=](auto& c) { c.train.flops = nan; });
  wrong("train.flops is inf", [=](auto& c) { c.train.steps = 0, c.train.flops = inf; });
  wrong("train.learning_rate is inf", [=](auto& c) { c.train.learning_rate = inf; });
  wrong("train.learning_rate is -1", [](auto& c) { c.train.learning_rate = -1; });
  wrong("model.rope_theta is nan", [=](auto& c) { c.model.rope_theta = nan; });
  wrong("train.warmup is 1.5", [](auto& c) { c.train.warmup = 1.5; });
  wrong("train.final_rate is -1", [](auto& c) { c.train.final_rate = -1; });
  wrong("beta2 = 1", [](auto& c) { c.train.beta2 = 1; });
  wrong("beta1 = -0.1", [](auto& c) { c.train.beta1 = -0.1; });
  wrong("train.clip is -1", [](auto& c) { c.train.clip = -1; });
  wrong("train.capacity_anneal is -1", [](auto& c) { c.train.capacity_anneal = -1; });
  wrong("train.keep is 0", [](auto& c) { c.train.keep = 0; });
  wrong("must be 0 or more", [](auto& c) { c.train.save_every = -1; });
  wrong("train.out is empty", [](auto& c) { c.train.out = ""; });
}

}  // namespace
}  // namespace isobath
