// The list of weights. Sizing, initial values, file names, decay, clipping, packing and printing walk it.
//
// q, k, v are neighbours in memory and so one matrix (qkv); gate and up likewise (gate_up): one product each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "ops/product.h"
#include "tensor/arena.h"

namespace isobath {

struct RouterWeights {
  F32 w;                             // (D)
  F32 bias;                          // (1) or empty
  F32 threshold;                     // (1) of causal = threshold, or empty
  F32 offset;                        // (1) of a calibrated model, or empty
  F32 fc1, fc1_bias, fc2, fc2_bias;  // predictor: (P,D), (P), (1,P), (1), or empty
};

// One expert of a section's MLP.
struct ExpertWeights {
  F32 gate, up;  // (F, D) each
  F32 down;      // (D, F)

  F32 gate_up() const { return {gate.data, {2 * gate.rows(), gate.cols()}}; }
};

// Of a section: half a block leaves the other half's empty.
struct SectionWeights {
  F32 norm1;                          // (D)
  F32 q, k, v;                        // (H*K, D), (G*K, D), (G*K, D)
  F32 o;                              // (D, H*K)
  F32 norm2;                          // (D)
  F32 gate, up;                       // (F, D) each
  F32 down;                           // (D, F)
  F32 expert_router;                  // (E+Z, D); with experts, which replace gate, up and down
  F32 expert_offset;                  // (E) of a calibrated model whose experts choose, or empty
  std::vector<ExpertWeights> expert;  // (E)
  RouterWeights router;

  F32 kv() const { return {k.data, {k.rows() + v.rows(), k.cols()}}; }
  F32 qkv() const { return {q.data, {q.rows() + k.rows() + v.rows(), q.cols()}}; }
  F32 gate_up() const { return {gate.data, {2 * gate.rows(), gate.cols()}}; }
};

struct Weights {
  F32 embed;                            // (V, D)
  std::vector<SectionWeights> section;  // by section
  F32 norm;                             // (D)
  F32 head;                             // (V, D); empty when tied

  CF32 output_head() const { return head.empty() ? embed : head; }
};

// How a weight starts and how it is trained.
enum class Kind : uint8_t {
  kMatrix,
  kOutput,
  kEmbedding,
  kNorm,
  kRouter,
  kPredictor,
  kRule,  // a number of a causal rule: measured, never trained; its gradient stays zero
};
inline bool is_trained(Kind kind) { return kind != Kind::kRule; }
inline bool decays(Kind kind) { return kind == Kind::kMatrix || kind == Kind::kOutput; }
// The predictor is a model of its own: own clipping, outside the global norm.
inline bool is_predictor(Kind kind) { return kind == Kind::kPredictor; }

struct WeightInfo {
  std::string name;  // as in the file
  Shape shape;
  Kind kind;
  int64_t section = -1;   // that it belongs to; -1: embedding, last norm, head
  bool adjacent = false;  // right behind the weight before it in memory, one matrix with it
  bool bias = false;      // starts at 0
};

// Visits every weight in the order of the files: visit(info, view).
using VisitWeight = std::function<void(const WeightInfo&, F32&)>;
void for_each_weight(const ModelConfig& config, Weights& weights, const VisitWeight& visit);

// Where the matrices of products are. Embedding, norms, routers and predictors are in memory in any case.
enum class Matrices : uint8_t {
  kHere,
  kInFile,  // their views have shapes and no data
};
inline bool is_matrix(Kind kind) { return kind == Kind::kMatrix || kind == Kind::kOutput; }

// Matrices that stay where they are stored: find(name) is the one of that name in the file. `where` is for messages.
struct FileMatrices {
  std::function<RawMatrix(const std::string& name)> find = {};
  std::shared_ptr<const void> file = {};  // kept open while weights may be lent from it
  std::string where = {};
};

// One set of numbers in the shape of the weights: the weights, their gradients, AdamW's two moments.
class WeightSet {
 public:
  explicit WeightSet(const ModelConfig& config, Allocate allocate = Allocate::kYes, Matrices = Matrices::kHere);
  WeightSet(const WeightSet&) = delete;
  WeightSet& operator=(const WeightSet&) = delete;

  const ModelConfig& config() const { return config_; }
  void set_annealed(double share) { config_.routing.annealed = share; }  // changes no weight
  Weights& weights() { return weights_; }
  const Weights& weights() const { return weights_; }
  const std::vector<WeightInfo>& list() const { return list_; }
  F32 at(size_t i) const { return views_[i]; }                                                // of list()[i]
  const std::string& name_of(const F32& view) const { return list_[place_.at(&view)].name; }  // of one of weights()
  // The weight's numbers lie elsewhere from now on, where nobody may write: a mapped file.
  void lend(size_t i, const float* data);
  int64_t numel() const;
  int64_t bytes() const { return bytes_; }

 private:
  ModelConfig config_;
  Weights weights_;
  std::vector<WeightInfo> list_;
  std::vector<F32> views_;
  std::vector<F32*> fields_;            // the views of weights_
  std::map<const F32*, size_t> place_;  // in the list, of these
  int64_t bytes_;
  Arena arena_;
};

// Start values (docs/design.md): a pure function of (seed, name, place), so that adding a weight moves no other.
void initialize(WeightSet& weights, uint64_t seed);

// Number of weights without allocating them.
int64_t count_weights(const ModelConfig& config);

// When weights are packed for their products.
enum class Packing : uint8_t {
  kStep,     // once per change: packed copies of all weights are kept beside the plain ones
  kProduct,  // before a product, in room for the weights of one block: no copies are kept. The same bits
};
template <>
inline constexpr std::array kNames<Packing>{"step", "product"};

// The products over one set of weights. They share scratch: one runs at a time.
struct ExpertProducts {
  Product gate_up, down;
};
struct SectionProducts {
  bool apart = false;  // queries are of fewer rows than keys and values: q and kv in place of qkv
  Product qkv, q, kv;
  Product o, gate_up, down;
  Linear fc1;  // a predictor chooses: fp32 in any case
  std::vector<ExpertProducts> expert;
};
class Products {
 public:
  struct Sizes {
    int64_t max_rows;
    std::vector<int64_t> exact;  // list sizes that come at every step
    int64_t head_rows;           // rows of the head's chunk
    bool backward;
    Packing packing = Packing::kStep;  // the head's weights are packed once in any case: it goes by chunks of rows
    std::optional<WeightFormat> frozen = {};  // of weights that no longer change: products for few rows, forward only
    bool operator==(const Sizes&) const = default;
  };
  Products(const ModelConfig& config, const Sizes& sizes, Allocate allocate = Allocate::kYes);
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // After every change of the weights, which must stay where they are.
  void pack(const Weights& weights);
  // Of `frozen` products only: matrices from the file, without a copy in between. What else products need is in `set`.
  // Throws Error{kWork} naming weights that are not sound (FrozenLinear::pack).
  void pack(const WeightSet& set, const FileMatrices& file);
  const SectionProducts& section(int64_t l) const { return section_[size_t(l)]; }
  const Product& head() const { return head_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Rooms {
    PackingRoom qkv, q, kv, o, gate_up, down, fc1;
  };
  // f(product, the weights that make up its matrix, neighbours in memory)
  using PackProduct = std::function<void(Product& product, std::initializer_list<const F32*> parts)>;
  void for_each_packed(const Weights& weights, const PackProduct& f);
  Rooms rooms_;
  std::vector<SectionProducts> section_;
  Product head_;
  int64_t bytes_;
  Arena arena_;
};

}  // namespace isobath
