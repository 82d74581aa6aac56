// Invariant 15: what is not finite stops the run, with step, layer and the last good checkpoint named.
#include <gtest/gtest.h>

#include <cmath>

#include "support/full_disk.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

void poison(const Trainer& trainer, const std::string& name, float value = std::nanf("")) {
  const Model& model = trainer.model();
  for (size_t i = 0; i < model.weights.list().size(); i++)
    if (model.weights.list()[i].name == name) {
      model.weights.at(i)[0] = value;
      return model.products->pack(model.weights.weights());
    }
  ADD_FAILURE() << "no weight " << name;
}

// A run whose weight is poisoned after step 4; it saved at step 3. Returns what it died of.
std::string death_of(const RunConfig& config, const std::string& name) {
  const auto trainer = trainer_of(config);
  const Error error = error_of([&] {
    trainer->run({.on_step = [&](const StepRecord& r) {
      if (r.step == 4) poison(*trainer, name);
    }});
  });
  const std::string message = error.what();
  EXPECT_EQ(error.fault(), Fault::kWork);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  expect_in(message, "step 5: ");
  expect_in(message, "the last good checkpoint is " + (fs::path(config.train.out) / "step-00000003").string());
  return message;
}

TEST(NotFinite, stops_with_step_layer_and_checkpoint_named) {
  struct Case {
    Topology topology;
    const char* poisoned;
    const char* named;
  };
  const Case cases[] = {
      {Topology::kDense, "model.embed_tokens.weight", "seen in the embedding;"},
      {Topology::kDense, "model.layers.0.self_attn.o_proj.weight", "seen in the output of block 0;"},
      {Topology::kDense, "model.layers.2.mlp.down_proj.weight", "seen in the output of block 2;"},
      {Topology::kDense, "model.layers.3.mlp.gate_proj.weight", "seen in the output of block 3;"},
      {Topology::kDense, "lm_head.weight", "seen in the output head;"},
      {Topology::kJoint, "model.layers.1.router.weight", "block 1: "},
      {Topology::kJoint, "model.layers.3.router.weight", "block 3: "},
      {Topology::kJoint, "model.layers.3.mlp.down_proj.weight", "seen in the output of block 3;"},
  };
  for (const Case& p : cases) {
    SCOPED_TRACE(p.poisoned);
    const TempDir dir;
    RunConfig config = tiny_run(dir, 40);
    config.model.routing.topology = p.topology;
    config.train.save_every = 3;
    // Every token of the alphabet may be the poisoned row of the embedding: id 0 stands in the text.
    std::string text = read_file(config.data.path);
    for (size_t i = 0; i < text.size(); i += 5) text[i] = '\0';
    dir.write("text.txt", text);
    expect_in(death_of(config, p.poisoned), p.named);

    const auto saved = latest_checkpoint(config.train.out);
    ASSERT_TRUE(saved);
    const auto again = trainer_of(config);
    again->resume(saved->folder);
    EXPECT_EQ(again->step().step, 4);
    EXPECT_TRUE(std::isfinite(again->step().loss));
  }
}

TEST(NotFinite, without_a_checkpoint_it_says_so) {
  const TempDir dir;
  const auto trainer = trainer_of(tiny_run(dir, 40));
  poison(*trainer, "lm_head.weight");
  const Error error = error_of([&] { trainer->step(); });
  EXPECT_EQ(error.fault(), Fault::kWork);
  expect_in(error.what(), "step 1: the loss is nan");
  expect_in(error.what(), "no checkpoint was written yet");
}

// With an embedding of zeros every norm multiplies its gradient by 1/sqrt(eps); the loss stays finite.
TEST(NotFinite, a_gradient_is_named_by_its_weight_and_nothing_is_changed) {
  const TempDir dir;
  RunConfig config = tiny_run(dir, 40);
  config.model.routing.topology = Topology::kDense;
  config.model.rms_norm_eps = 1e-37;
  const auto trainer = trainer_of(config);
  const WeightSet& weights = trainer->model().weights;
  std::fill_n(weights.at(0).data, weights.at(0).numel(), 0.0f);
  const std::vector<float> before = values_of(weights);
  const Error error = error_of([&] { trainer->step(); });
  EXPECT_EQ(error.fault(), Fault::kWork);
  expect_in(error.what(), "step 1: the gradient of model.");
  expect_in(error.what(), "is not finite");
  EXPECT_EQ(values_of(weights), before);
}

TEST(Folder, that_cannot_be_made_or_written_in_is_found_before_work) {
  const TempDir dir;
  RunConfig config = tiny_run(dir, 40);
  const auto refused = [&](const fs::path& out) {
    config.train.out = out.string();
    const Error error = error_of([&] { run_and_watch(config); });
    EXPECT_EQ(error.fault(), Fault::kInput);
    expect_in(error.what(), out.string());
  };
  refused(dir.write("file", "x"));
  refused(dir.write("file", "x") / "run");
  fs::create_directory(dir / "disk");
  TinyDisk disk(dir / "disk", 64);
  if (!disk.mounted()) GTEST_SKIP() << "only the superuser may mount a read-only disk";
  fs::create_directory(dir / "disk" / "run");
  ASSERT_TRUE(disk.make_read_only());
  refused(dir / "disk");
  refused(dir / "disk" / "run");
  refused(dir / "disk" / "other");
}

TEST(FullDisk, names_the_last_good_checkpoint_which_still_loads) {
  const TempDir dir;
  RunConfig config = tiny_run(dir, 40);
  config.train.steps = 200;
  config.train.save_every = 2;
  config.train.keep = 100;
  config.train.out = (dir / "disk").string();
  fs::create_directory(dir / "disk");
  const TinyDisk disk(dir / "disk", 2000);
  if (!disk.mounted()) GTEST_SKIP() << "only the superuser may mount a small disk";
  const Error error = error_of([&] { run_and_watch(config); });
  EXPECT_EQ(error.fault(), Fault::kWork);
  expect_in(error.what(), "No space left on device");
  const auto saved = latest_checkpoint(config.train.out);
  ASSERT_TRUE(saved);
  expect_in(error.what(), "the last good checkpoint is " + saved->folder.string());
  const auto again = trainer_of(config);
  again->resume(saved->folder);
  EXPECT_EQ(again->step().step, saved->step + 1);
}

TEST(Text, shorter_than_the_context_is_found_before_work) {
  const TempDir dir;
  RunConfig config = tiny_run(dir, 2);
  config.data.context = 400;
  const Error error = error_of([&] { trainer_of(config); });
  EXPECT_EQ(error.fault(), Fault::kInput);
  expect_in(error.what(), "expected at least context + 1 = 401");
  config.data.context = corpus_of(config).train.size() - 1;  // the longest that goes
  trainer_of(config)->step();
  EXPECT_FALSE(fs::exists(config.train.out));
}

}  // namespace
}  // namespace isobath
