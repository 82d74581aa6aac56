// A folder as Mixtral's own programs write it is the model that its formulas say, in float64 and in plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "checkpoint/safetensors.h"
#include "generate/engine.h"
#include "generate/load.h"
#include "reference/network.h"
#include "support/compare.h"
#include "support/refusal.h"
#include "support/temp_dir.h"

namespace isobath {
namespace {

using namespace testing;
namespace ref = reference;

constexpr ref::NetworkShape kShape{.D = 20,
                                   .F = 28,
                                   .V = 259,
                                   .L = 2,
                                   .H = 4,
                                   .G = 2,
                                   .K = 10,
                                   .eps = 1e-5,
                                   .theta = 1e6,
                                   .experts_over_their_sum = true};
constexpr size_t kExperts = 5;

nlohmann::json mixtral_config() {
  return {{"architectures", {"MixtralForCausalLM"}},
          {"attention_dropout", 0.0},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"head_dim", kShape.K},
          {"hidden_act", "silu"},
          {"hidden_size", kShape.D},
          {"initializer_range", 0.02},
          {"intermediate_size", kShape.F},
          {"max_position_embeddings", 64},
          {"model_type", "mixtral"},
          {"num_attention_heads", kShape.H},
          {"num_experts_per_tok", 2},
          {"num_hidden_layers", kShape.L},
          {"num_key_value_heads", kShape.G},
          {"num_local_experts", kExperts},
          {"output_router_logits", false},
          {"rms_norm_eps", kShape.eps},
          {"rope_theta", kShape.theta},
          {"router_aux_loss_coef", 0.02},
          {"router_jitter_noise", 0.0},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", false},
          {"tokenizer", "bytes"},
          {"torch_dtype", "float32"},
          {"use_cache", true},
          {"vocab_size", kShape.V}};
}

// All tensors of such a folder, under the names that Mixtral has for them.
std::map<std::string, Buffer> mixtral_tensors() {
  const int64_t D = kShape.D, F = kShape.F, V = kShape.V, q = kShape.H * kShape.K, kv = kShape.G * kShape.K;
  std::map<std::string, Buffer> all;
  const auto matrix = [&](const std::string& name, int64_t out, int64_t in, float scale = 1) {
    all.emplace(name, random_buffer({out, in}, 100 + all.size(), scale / std::sqrt(float(in))));
  };
  const auto norm = [&](const std::string& name) {
    Buffer b = random_buffer({D}, 100 + all.size(), 0.2f);
    for (float& v : b.values) v += 1;
    all.emplace(name, b);
  };
  matrix("model.embed_tokens.weight", V, D, 4);
  for (int64_t l = 0; l < kShape.L; l++) {
    const std::string block = "model.layers." + std::to_string(l) + ".";
    norm(block + "input_layernorm.weight");
    matrix(block + "self_attn.q_proj.weight", q, D);
    matrix(block + "self_attn.k_proj.weight", kv, D);
    matrix(block + "self_attn.v_proj.weight", kv, D);
    matrix(block + "self_attn.o_proj.weight", D, q);
    norm(block + "post_attention_layernorm.weight");
    matrix(block + "block_sparse_moe.gate.weight", kExperts, D, 2);
    for (size_t e = 0; e < kExperts; e++) {
      const std::string expert = block + "block_sparse_moe.experts." + std::to_string(e) + ".";
      matrix(expert + "w1.weight", F, D);
      matrix(expert + "w2.weight", D, F, 2);
      matrix(expert + "w3.weight", F, D, 2);
    }
  }
  norm("model.norm.weight");
  matrix("lm_head.weight", V, D, 3);
  return all;
}

void write_folder(const TempDir& dir, const nlohmann::json& config, const std::map<std::string, Buffer>& tensors) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, tensor.view()});
  write_safetensors(dir / "model.safetensors", named);
  dir.write("config.json", config.dump(2));
}

// Logits (N,V) of a sequence. Each block's two best experts follow from the scores that the blocks before it give.
ref::Vec<double> reference_logits(const std::map<std::string, Buffer>& tensors, const std::vector<int32_t>& tokens) {
  ref::NamedWeights<double> w;
  for (const auto& [name, tensor] : tensors) w[name] = to_double(tensor);
  std::vector<ref::Row> rows;
  for (size_t n = 0; n < tokens.size(); n++) rows.push_back({tokens[n], -1, int32_t(n), 0});
  std::vector<ref::Choice> choices;
  ref::Outcome<double> out;
  for (int64_t l = 0; l <= kShape.L; l++) {
    if (l > 0) choices.back().taken = ref::token_choice(out.experts.back().logit, {.experts = kExperts, .per_row = 2});
    if (l < kShape.L)
      choices.push_back(
          {.block = l, .chosen{}, .score{}, .taken = std::vector<std::vector<ref::Taken>>(tokens.size())});
    out = ref::network(kShape, w, rows, choices);
  }
  const int64_t N = int64_t(tokens.size());
  return ref::product(ref::rms_norm(out.x.back(), w.at("model.norm.weight"), kShape.eps), w.at("lm_head.weight"), N);
}

TEST(Mixtral, FolderIsTheModelOfItsFormulas) {
  const TempDir dir;
  const auto tensors = mixtral_tensors();
  write_folder(dir, mixtral_config(), tensors);
  for (const bool mapped : {false, true}) {
    const LoadedModel loaded = mapped ? load_for_generation(dir.path()) : load_model(dir.path());
    EXPECT_TRUE(loaded.tokenizer.is_bytes());
    EXPECT_TRUE(loaded.model->config().is_mixtral());
    std::vector<std::vector<float>> logits;
    Result result;
    Engine engine(*loaded.model, loaded.tokenizer, {});
    engine.submit({.prompt = {200, 7, 31, 8, 99, 104, 0, 7},
                   .max_tokens = 12,
                   .stop_at_eos = false,
                   .sampling = {.temperature = 0}},
                  {.on_token = [&](const Result&, CF32 row) { logits.emplace_back(row.data, row.data + row.numel()); },
                   .on_finish = [&](const Result& r) { result = r; }});
    engine.run();
    ASSERT_EQ(result.drawn(), 12);
    const ref::Vec<double> want = reference_logits(tensors, result.tokens);
    for (int64_t i = 0; i < result.drawn(); i++) {
      const auto first = want.begin() + (result.prompt_tokens - 1 + i) * kShape.V;
      const std::vector<double> row(first, first + kShape.V);
      expect_close(logits[size_t(i)], row, 30, 1000, "logits");
      EXPECT_EQ(result.tokens[size_t(result.prompt_tokens + i)],
                std::max_element(row.begin(), row.end()) - row.begin());
    }
  }
}

TEST(Mixtral, EveryTensorIsInItsPlace) {
  const TempDir dir;
  const auto tensors = mixtral_tensors();
  write_folder(dir, mixtral_config(), tensors);
  const LoadedModel loaded = load_model(dir.path());
  const auto same = [&](CF32 got, const std::string& name) {
    const Buffer& want = tensors.at(name);
    ASSERT_EQ(got.shape, want.shape) << name;
    expect_same_bits(got.data, want.values.data(), want.shape.numel(), name.c_str());
  };
  EXPECT_EQ(loaded.model->weights.list().size(), tensors.size());
  const Weights& w = loaded.model->weights.weights();
  for (size_t l = 0; l < w.section.size(); l++) {
    const std::string moe = "model.layers." + std::to_string(l) + ".block_sparse_moe.";
    same(w.section[l].expert_router, moe + "gate.weight");
    ASSERT_EQ(w.section[l].expert.size(), kExperts);
    for (size_t e = 0; e < kExperts; e++) {
      const std::string expert = moe + "experts." + std::to_string(e) + ".";
      same(w.section[l].expert[e].gate, expert + "w1.weight");
      same(w.section[l].expert[e].down, expert + "w2.weight");
      same(w.section[l].expert[e].up, expert + "w3.weight");
    }
  }
}

TEST(Mixtral, ExpertsThatDoNotGoWithTheConfigAreNamed) {
  const TempDir dir;
  auto tensors = mixtral_tensors();
  const auto says = [&](const std::string& words) {
    const std::string said = refusal([&] { load_model(dir.path()); });
    EXPECT_NE(said.find(words), std::string::npos) << said;
    EXPECT_NE(said.find(dir.path().string()), std::string::npos) << said;
  };
  nlohmann::json fewer = mixtral_config(), more = mixtral_config();
  fewer["num_local_experts"] = kExperts - 1, more["num_local_experts"] = kExperts + 1;
  write_folder(dir, fewer, tensors);
  says("block_sparse_moe");
  write_folder(dir, more, tensors);
  says("block_sparse_moe");
  tensors.erase("model.layers.1.block_sparse_moe.experts.3.w3.weight");
  write_folder(dir, mixtral_config(), tensors);
  says("model.layers.1.block_sparse_moe.experts.3.w3.weight");
}

}  // namespace
}  // namespace isobath
