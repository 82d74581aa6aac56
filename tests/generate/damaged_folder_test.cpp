// A quantized folder with a file that was cut or in which bits changed: it is refused by name, or nothing that matters
// changed and it is still the same model. Numbers themselves (a tensor's data, eps, theta, ...) are taken as they are.
#include <gtest/gtest.h>

#include <cstring>

#include "base/json.h"
#include "generate/load.h"
#include "generate/quantize.h"
#include "generate/tiny_experts.h"
#include "support/mutate.h"
#include "support/refusal.h"
#include "support/temp_dir.h"

namespace isobath {
namespace {

using namespace testing;

struct Quantized {
  const char* name;
  WeightFormat format;
  ModelConfig config;
};
void PrintTo(const Quantized& q, std::ostream* out) { *out << q.name; }

class DamagedFolder : public ::testing::TestWithParam<Quantized> {
 protected:
  DamagedFolder() {
    save_quantized(dir_.path(), *tiny_model(GetParam().config), Tokenizer::bytes(), GetParam().format);
    config_ = read_file(dir_ / "config.json");
    tensors_ = read_file(dir_ / "model.safetensors");
    answer_ = answer();
  }
  Traced answer() const {
    const LoadedModel loaded = load_for_generation(dir_.path());
    Engine engine(*loaded.model, loaded.tokenizer, {});
    const Request request{.prompt = random_prompt(7, 1), .max_tokens = 2, .stop_at_eos = false};
    return run_traced(engine, {&request, 1})[0];
  }
  std::string says() const {
    return refusal([&] { answer(); });
  }
  void expect_refused(const std::string& file, const std::string& what) const {
    const std::string said = says();
    EXPECT_NE(said.find((dir_ / file).string()), std::string::npos) << what << ": " << said;
  }
  // Returns whether it was refused, by a message that names the folder.
  bool expect_refused_or_the_same(const std::string& what) const {
    const std::string said = says();
    const bool accepted = said == "(accepted)";
    if (accepted)
      expect_same_answer(answer(), answer_, what);
    else
      EXPECT_NE(said.find(dir_.path().string()), said.npos) << what << ": " << said;
    return !accepted;
  }
  void put(const std::string& file, const std::string& bytes) const { dir_.write(file, bytes); }
  static std::string flipped(std::string bytes, size_t at, int bit) {
    bytes[at] = char(bytes[at] ^ (1 << bit));
    return bytes;
  }
  // Length and JSON; behind them is data.
  size_t header_bytes() const {
    uint64_t length = 0;
    std::memcpy(&length, tensors_.data(), sizeof length);
    return 8 + size_t(length);
  }

  const TempDir dir_;
  std::string config_, tensors_;
  Traced answer_;
};
INSTANTIATE_TEST_SUITE_P(
    Folders, DamagedFolder,
    ::testing::Values(Quantized{"Int8Routed", WeightFormat::kInt8, tiny_config()},
                      Quantized{"Bf16Staggered", WeightFormat::kBf16, tiny_config(kRules[7])},
                      Quantized{"Int8Experts", WeightFormat::kInt8, tiny_config(kExpertVariants[0])},
                      Quantized{"Bf16StagedCalibrated", WeightFormat::kBf16, tiny_config(kExpertVariants[11])}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(DamagedFolder, TensorsThatAreCutAreRefused) {
  for (size_t length = 0; length < tensors_.size(); length += 1 + tensors_.size() / 40) {
    put("model.safetensors", tensors_.substr(0, length));
    expect_refused("model.safetensors", "cut to " + std::to_string(length));
  }
  put("model.safetensors", tensors_.substr(0, tensors_.size() - 1));
  expect_refused("model.safetensors", "the last byte is missing");
  put("model.safetensors", tensors_ + '\0');
  expect_refused("model.safetensors", "a byte too many");
}

TEST_P(DamagedFolder, BitsOfTheHeaderOfTensorsAreNeverTakenForAnotherModel) {
  const size_t header = header_bytes();
  int64_t refused = 0, tried = 0;
  for (size_t at = 0; at < header; at += at < 8 ? 1 : 13) {
    const int bit = int(at * 5 % 8);
    put("model.safetensors", flipped(tensors_, at, bit));
    const std::string what = "bit " + std::to_string(bit) + " of byte " + std::to_string(at);
    refused += expect_refused_or_the_same(what);
    tried++;
  }
  EXPECT_GT(refused, tried * 9 / 10);
}

TEST_P(DamagedFolder, ConfigThatIsCutIsRefused) {
  const size_t end = config_.find_last_of('}');
  for (size_t length = 0; length <= end; length += 1 + end / 60) {
    put("config.json", config_.substr(0, length));
    expect_refused("config.json", "cut to " + std::to_string(length));
  }
  put("config.json", config_.substr(0, end));
  expect_refused("config.json", "the last brace is missing");
}

// What sizes and formats say is said by the tensors, too.
TEST_P(DamagedFolder, BitsOfSizesAndFormatsAreNeverTakenForAnotherModel) {
  for (const char* key : {"quantization", "model_type", "vocab_size", "hidden_size", "intermediate_size",
                          "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"}) {
    const size_t name = config_.find("\"" + std::string(key) + "\"");
    ASSERT_NE(name, std::string::npos) << key;
    const size_t begin = config_.find(':', name) + 1, end = config_.find_first_of(",}\n", begin);
    for (size_t at = begin; at < end; at++)
      for (int bit = 0; bit < 8; bit++) {
        const std::string bytes = flipped(config_, at, bit);
        put("config.json", bytes);
        expect_refused_or_the_same(std::string(key) + (":" + bytes.substr(begin, end - begin)));
      }
  }
}

TEST_P(DamagedFolder, NoChangeOfTheConfigCrashes) {
  for (uint64_t seed = 0; seed < 300; seed++) {
    const bool one_bit = seed % 2 == 0;
    put("config.json",
        one_bit ? flipped(config_, size_t(seed * 7919) % config_.size(), int(seed / 2 % 8)) : mutate(config_, seed));
    const std::string said = says();
    EXPECT_TRUE(said == "(accepted)" || said.find(dir_.path().string()) != said.npos) << seed << ": " << said;
  }
}

}  // namespace
}  // namespace isobath
