#include "generate/load.h"

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "generate/tiny_experts.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace isobath {
namespace {

using namespace testing;

void write_folder(const TempDir& folder, const Model& model) {
  folder.write("config.json", to_json(model.config()).dump());
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < model.weights.list().size(); i++)
    tensors.push_back({model.weights.list()[i].name, model.weights.at(i)});
  write_safetensors(folder / "model.safetensors", tensors);
}

std::string refusal(const std::filesystem::path& path) {
  try {
    load_model(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::vector<ModelConfig> every_config() {
  std::vector<ModelConfig> all;
  for (const Rule& rule : kRules) all.push_back(tiny_config(rule));
  for (const ExpertVariant& v : variants_that_generate()) all.push_back(tiny_config(v));
  return all;
}

TEST(Load, WrittenModelComesBackBitForBitAndGeneratesTheSame) {
  for (const ModelConfig& config : every_config()) {
    SCOPED_TRACE(to_json(config).dump());
    const TempDir folder;
    const auto model = tiny_model(config);
    write_folder(folder, *model);
    const LoadedModel loaded = load_model(folder.path());
    EXPECT_TRUE(loaded.tokenizer.is_bytes());
    EXPECT_EQ(to_json(loaded.model->config()), to_json(config));
    ASSERT_EQ(loaded.model->weights.list().size(), model->weights.list().size());
    for (size_t i = 0; i < model->weights.list().size(); i++)
      expect_same_bits(loaded.model->weights.at(i).data, model->weights.at(i).data, model->weights.at(i).numel(),
                       model->weights.list()[i].name.c_str());
    const std::vector<Request> request{{.prompt = random_prompt(6, 1), .max_tokens = 10, .stop_at_eos = false}};
    std::vector<int32_t> tokens[2];
    for (Model* m : {model.get(), loaded.model.get()}) {
      Engine engine(*m, loaded.tokenizer, {});
      tokens[m == model.get()] = run_all(engine, request)[0].tokens;
    }
    EXPECT_EQ(tokens[0].size(), 16u);
    EXPECT_EQ(tokens[0], tokens[1]);
  }
}

TEST(Load, FolderWithoutATokenizerSaysSo) {
  const TempDir folder;
  ModelConfig config = tiny_config();
  config.vocab_size = 300;
  write_folder(folder, *tiny_model(config));
  EXPECT_NE(refusal(folder.path()).find("tokenizer.json"), std::string::npos);
  config.other["tokenizer"] = "bytes";
  folder.write("config.json", to_json(config).dump());
  EXPECT_TRUE(load_model(folder.path()).tokenizer.is_bytes());
}

TEST(Load, TokenizerLargerThanTheModelIsRefused) {
  const TempDir folder;
  ModelConfig config = tiny_config();
  config.vocab_size = 200;
  config.other["tokenizer"] = "bytes";
  write_folder(folder, *tiny_model(config));
  EXPECT_NE(refusal(folder.path()).find("257 ids, the model a vocabulary of 200"), std::string::npos);
}

TEST(Load, RoutedWeightsUnderADenseConfigAreRefusedByName) {
  const TempDir folder;
  const auto model = tiny_model(tiny_config());
  write_folder(folder, *model);
  folder.write("config.json", to_json(dense_twin(model->config())).dump());
  EXPECT_NE(refusal(folder.path()).find("router.weight"), std::string::npos);
}

TEST(Load, DamagedConfigIsRefusedWithItsPath) {
  const TempDir folder;
  write_folder(folder, *tiny_model(tiny_config()));
  const auto path = folder.write("config.json", "{\"model_type\": ");
  EXPECT_NE(refusal(folder.path()).find(path.string()), std::string::npos);
  EXPECT_NE(refusal(folder / "nothing"), "no error");
}

TEST(Load, HuggingFaceLlamaFolderIsADenseModel) {
  ISOBATH_NEEDS_DATA(path, "models/stories260K-hf");
  const LoadedModel loaded = load_model(path);
  EXPECT_EQ(loaded.model->config().routed_blocks(), 0);
  EXPECT_EQ(loaded.model->weights.numel(), 260032);
  EXPECT_EQ(loaded.tokenizer.vocab_size(), 512);
}

TEST(Load, EnginesNeedNoMatricesButTheirOwn) {
  ModelConfig config = tiny_config();
  config.hidden_size = 80;  // matrices of several pages
  config.intermediate_size = 300;
  const auto model = tiny_model(config);
  Engine engine(*model, Tokenizer::bytes(), {});
  const std::vector<Request> request{{.prompt = random_prompt(5, 1), .max_tokens = 5}};
  const Result before = run_all(engine, request)[0];
  forget_packed_weights(*model);
  const SectionWeights& block = model->weights.weights().section[0];
  EXPECT_EQ(block.up[block.up.numel() / 2], 0);
  EXPECT_NE(block.norm1[0], 0);
  engine.forget_prefixes();
  EXPECT_EQ(run_all(engine, request)[0].tokens, before.tokens);
}

}  // namespace
}  // namespace isobath
