// What is stored quantized is what an engine would have rounded itself, bit for bit; models of which the matrices stay
// in their file are the models that they are in memory.
#include "generate/quantize.h"

#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "generate/load.h"
#include "generate/tiny_experts.h"
#include "support/mutate.h"
#include "support/refusal.h"
#include "support/temp_dir.h"
#include "train/trainer.h"

namespace isobath {
namespace {

using namespace testing;

constexpr WeightFormat kQuantized[] = {WeightFormat::kBf16, WeightFormat::kInt8};

std::vector<Traced> answers(const Model& model, std::optional<WeightFormat> format = {}) {
  Engine engine(model, Tokenizer::bytes(), {.sequences = 2, .weights = format});
  return run_traced(engine, drawn_requests(2));
}

void expect_same_answers(const std::vector<Traced>& got, const std::vector<Traced>& want, const std::string& what) {
  for (size_t b = 0; b < want.size(); b++) expect_same_answer(got[b], want[b], what);
}

std::vector<ModelConfig> configs() {
  std::vector<ModelConfig> all;
  for (const Rule& rule : kRules) all.push_back(tiny_config(rule));
  all.push_back(dense_twin(tiny_config()));
  all.push_back(tiny_config());
  all.back().tie_word_embeddings = true;
  for (const ExpertVariant& v : {kExpertVariants[0], kExpertVariants[6], kExpertVariants[7], kExpertVariants[9]})
    all.push_back(tiny_config(v));
  return all;
}

TEST(Quantize, WhatIsStoredIsWhatEnginesRound) {
  for (const ModelConfig& config : configs())
    for (const WeightFormat format : kQuantized) {
      const auto model = tiny_model(config);
      const TempDir folder;
      save_quantized(folder.path(), *model, Tokenizer::bytes(), format);
      const std::string what = to_json(config).dump() + std::string(name_of(format));
      const std::vector<Traced> want = answers(*model, format);
      const LoadedModel mapped = load_for_generation(folder.path()), loaded = load_model(folder.path());
      EXPECT_EQ(loaded.model->config().quantized, format);
      expect_same_answers(answers(*mapped.model), want, what);
      expect_same_answers(answers(*loaded.model, format), want, what);
      // Evaluation too runs in the stored format.
      if (format == WeightFormat::kBf16) expect_equals_uncached(*loaded.model, want[0]);
    }
}

TEST(Quantize, EngineOfAMappedModelIsThatOfOneInMemory) {
  for (const ModelConfig& config : configs()) {
    const auto model = tiny_model(config);
    const TempDir folder;
    save_model(folder.path(), *model, Tokenizer::bytes());
    for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8}) {
      const LoadedModel mapped = load_for_generation(folder.path());
      Engine engine(*mapped.model, Tokenizer::bytes(), {.sequences = 2, .weights = format});
      forget_packed_weights(*mapped.model);  // nor needs it the file any more
      fs::remove(folder / "never there");
      expect_same_answers(run_traced(engine, drawn_requests(2)), answers(*model, format), std::string(name_of(format)));
    }
  }
}

TEST(Quantize, OtherWeightsKeepTheirBitsAndErrorsAreOfTheRightSize) {
  const auto model = tiny_model(tiny_config(kRules[1]));
  for (const WeightFormat format : kQuantized) {
    const TempDir folder;
    int64_t last = 0, all = 0;
    const auto matrices =
        save_quantized(folder.path(), *model, Tokenizer::bytes(), format, [&](int64_t done, int64_t of) {
          EXPECT_GE(done, last);
          last = done, all = of;
        });
    EXPECT_LE(last, all);
    const LoadedModel loaded = load_model(folder.path());
    size_t next = 0;
    for (size_t i = 0; i < model->weights.list().size(); i++) {
      const WeightInfo& info = model->weights.list()[i];
      if (is_matrix(info.kind)) {
        EXPECT_EQ(matrices[next].name, info.name);
        EXPECT_EQ(matrices[next].section, info.section);
        // Half a step at most: of int8 some 1/127 of a group's largest, of bf16 1/256 of the number itself.
        EXPECT_GT(matrices[next].relative_error, format == WeightFormat::kInt8 ? 0.003 : 0.0008);
        EXPECT_LT(matrices[next].relative_error, format == WeightFormat::kInt8 ? 0.009 : 0.0024);
        next++;
      } else {
        expect_same_bits(loaded.model->weights.at(i).data, model->weights.at(i).data, info.shape.numel(),
                         info.name.c_str());
      }
    }
    EXPECT_EQ(next, matrices.size());
    int64_t bytes = 0;
    const TensorFolder tensors(folder.path());
    for (const std::string& name : tensors.names()) bytes += int64_t(tensors.at(name).bytes.size());
    EXPECT_EQ(bytes, quantized_bytes(model->weights, format));
  }
}

TEST(Quantize, WhatIsQuantizedIsNotTrainedNorRunOtherwise) {
  const auto model = tiny_model(tiny_config());
  const TempDir folder;
  save_quantized(folder.path(), *model, Tokenizer::bytes(), WeightFormat::kInt8);
  const LoadedModel loaded = load_model(folder.path()), mapped = load_for_generation(folder.path());
  const auto engine = [&](WeightFormat format) {
    return refusal([&] { Engine(*loaded.model, Tokenizer::bytes(), {.weights = format}); });
  };
  EXPECT_NE(engine(WeightFormat::kF32).find("stored in int8 and cannot be run in fp32"), std::string::npos);
  EXPECT_NE(refusal([&] { loaded.model->prepare(8, true); }), "(accepted)");
  EXPECT_NE(refusal([&] {
              save_quantized(folder.path(), *loaded.model, Tokenizer::bytes(), WeightFormat::kInt8);
            }).find("quantized to int8"),
            std::string::npos);
  EXPECT_NE(refusal([&] { save_quantized(folder.path(), *model, Tokenizer::bytes(), WeightFormat::kF32); }),
            "(accepted)");
  const TempDir plain;
  save_model(plain.path(), *model, Tokenizer::bytes());
  const LoadedModel left = load_for_generation(plain.path());
  EXPECT_NE(refusal([&] { left.model->prepare(8); }).find("load the whole model"), std::string::npos);
}

class Damaged : public ::testing::Test {
 protected:
  Damaged() { save_quantized(dir_.path(), *model_, Tokenizer::bytes(), WeightFormat::kInt8); }
  std::string config() const { return read_file(dir_ / "config.json"); }
  // What engines say of the folder now.
  std::string says() const {
    return refusal([&] {
      const LoadedModel mapped = load_for_generation(dir_.path());
      Engine(*mapped.model, Tokenizer::bytes(), {});
    });
  }
  // Where the bytes of a tensor are in the file.
  size_t place(const std::string& name) const {
    const SafetensorsFile file(dir_ / "model.safetensors");
    const std::string bytes = read_file(dir_ / "model.safetensors");
    size_t data = 0;
    for (const auto& [key, tensor] : file.tensors()) data += tensor.bytes.size();
    const std::byte* first = nullptr;
    for (const auto& [key, tensor] : file.tensors())
      if (first == nullptr || tensor.bytes.data() < first) first = tensor.bytes.data();
    return bytes.size() - data + size_t(file.tensors().at(name).bytes.data() - first);
  }
  void set(size_t at, char byte) const {
    std::string bytes = read_file(dir_ / "model.safetensors");
    bytes[at] = byte;
    replace_file(dir_ / "model.safetensors", bytes);
  }
  void expect_says(const std::string& words) const { EXPECT_NE(says().find(words), std::string::npos) << says(); }

  const std::unique_ptr<Model> model_ = tiny_model(tiny_config());
  const TempDir dir_;
};

TEST_F(Damaged, NumbersThatNoWriterWritesAreTold) {
  EXPECT_EQ(says(), "(accepted)");
  const std::string down = "model.layers.2.mlp.down_proj.weight";
  const size_t code = place(down) + 11, scale = place(down + "_scale") + 1;
  const std::string bytes = read_file(dir_ / "model.safetensors");
  set(code, char(0x80));
  expect_says(down + " is not finite");
  replace_file(dir_ / "model.safetensors", bytes);
  set(scale, char(0xBF));  // below 0
  expect_says(down);
  replace_file(dir_ / "model.safetensors", bytes);
  set(place("model.layers.0.self_attn.k_proj.weight_scale") + 3, char(0x7F));
  set(place("model.layers.0.self_attn.k_proj.weight_scale") + 2, char(0xFF));
  expect_says("one of model.layers.0.self_attn.q_proj.weight, model.layers.0.self_attn.k_proj.weight");
}

TEST_F(Damaged, FilesThatAreCutOrChangedNeverCrash) {
  const std::string bytes = read_file(dir_ / "model.safetensors");
  for (size_t length = 0; length < bytes.size(); length += 1 + bytes.size() / 40) {
    replace_file(dir_ / "model.safetensors", bytes.substr(0, length));
    EXPECT_NE(says(), "(accepted)") << length;
  }
  for (uint64_t seed = 0; seed < 60; seed++) {
    replace_file(dir_ / "model.safetensors", mutate(bytes.substr(0, 6000), seed) + bytes.substr(6000));
    const std::string said = says();
    EXPECT_FALSE(said.empty());
  }
}

TEST_F(Damaged, FormatsThatDoNotGoWithTheConfigAreTold) {
  const std::string right = config();
  const auto with = [&](const char* from, const char* to) {
    std::string text = right;
    text.replace(text.find(from), std::string(from).size(), to);
    replace_file(dir_ / "config.json", text);
  };
  with("\"quantization\": \"int8\"", "\"quantization\": \"int4\"");
  expect_says("quantization is \"int4\", expected bf16 or int8");
  with("\"quantization\": \"int8\"", "\"quantization\": \"bf16\"");
  expect_says("config.json says that matrices are in bf16");
  with("\"quantization\": \"int8\"", "\"other\": 1");
  EXPECT_NE(says(), "(accepted)");
  with("\"quantization\": \"int8\"", "\"quantization_config\": {\"bits\": 4}");
  expect_says("quantized by another program");
  replace_file(dir_ / "config.json", right);
  save_model(dir_.path(), *model_, Tokenizer::bytes());
  replace_file(dir_ / "config.json", right);
  expect_says("config.json says that matrices are in int8, but model.layers.0.self_attn.q_proj.weight is not");
}

TEST_F(Damaged, ScalesThatAreMissingOrOfAnotherShapeAreTold) {
  const ModelConfig c = model_->config();
  const auto write = [&](int64_t groups, const char* dtype) {
    std::vector<StreamedTensor> tensors;
    const TensorFolder from(dir_.path());
    std::vector<std::string> kept;  // the bytes, while the file is replaced
    for (const std::string& name : from.names()) {
      const StoredTensor& t = from.at(name);
      Shape shape = t.shape.size() == 1 ? Shape{t.shape[0]} : Shape{t.shape[0], t.shape[1]};
      std::string bytes(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
      std::string type = t.dtype;
      if (name == "lm_head.weight_scale") {
        if (groups == 0) continue;
        shape = {c.vocab_size, groups};
        type = dtype;
        bytes.resize(size_t(shape.numel()) * (type == "F32" ? 4 : 2));
      }
      tensors.push_back({name, type, shape, [bytes](FileWriter& out) { out.write(bytes); }});
    }
    write_safetensors(dir_ / "model.safetensors", std::move(tensors));
  };
  write(3, "BF16");
  expect_says("lm_head.weight_scale");
  write(2, "F32");
  expect_says("stored as F32, expected BF16");
  write(0, "");
  expect_says("no tensor \"lm_head.weight_scale\"");
}

}  // namespace
}  // namespace isobath
