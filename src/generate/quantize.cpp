#include "generate/quantize.h"

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/float_formats.h"
#include "base/parallel.h"
#include "checkpoint/safetensors.h"

namespace isobath {
namespace {

constexpr int64_t kGroup = 32;
int64_t groups(CF32 W) { return (W.cols() + kGroup - 1) / kGroup; }

struct Int8 {
  std::vector<int8_t> code;
  std::vector<uint16_t> scale;

  explicit Int8(CF32 W) : code(size_t(W.numel())), scale(size_t(W.rows() * groups(W))) {
    quantize_int8({code.data(), W.shape}, {scale.data(), {W.rows(), groups(W)}}, W);
  }
};

// value(n, k) is what became of W[n,k]. Rows in order, so the same bits for any number of threads.
template <class Value>
double relative_error(CF32 W, Value value) {
  std::vector<double> error(size_t(W.rows())), size(error);
  parallel_for(W.rows(), 16, [&](int64_t n) {
    for (int64_t k = 0; k < W.cols(); k++) {
      const double w = double(W.row(n)[k]), e = double(value(n, k)) - w;
      error[size_t(n)] += e * e, size[size_t(n)] += w * w;
    }
  });
  double all_errors = 0, all_sizes = 0;
  for (size_t n = 0; n < size.size(); n++) all_errors += error[n], all_sizes += size[n];
  return all_sizes == 0 ? 0 : std::sqrt(all_errors / all_sizes);
}

// What is written, and what is told of it.
struct Writing {
  std::vector<StreamedTensor> tensors = {};
  std::vector<QuantizedMatrix> matrices = {};
  std::vector<std::vector<uint16_t>> scales = {};  // wait for their turn in the file
  std::function<void(CF32 W)> done = {};
};

void add_bf16(Writing& to, const WeightInfo& info, CF32 W, const fs::path& path) {
  to.tensors.push_back(streamed({info.name, W}, StoreAs::kBF16, path));
  to.matrices.push_back({info.name, info.section, relative_error(W, [W](int64_t n, int64_t k) {
                           return bf16_to_f32(f32_to_bf16(W.row(n)[k]));
                         })});
}

// Scales come before codes in the file: the codes are made anew when it is their turn, rather than kept.
void add_int8(Writing& to, const WeightInfo& info, CF32 W) {
  Int8 rounded(W);
  const double error = relative_error(W, [&](int64_t n, int64_t k) {
    return bf16_to_f32(rounded.scale[size_t(n * groups(W) + k / kGroup)]) *
           float(rounded.code[size_t(n * W.cols() + k)]);
  });
  to.matrices.push_back({info.name, info.section, error});
  const auto& scale = to.scales.emplace_back(std::move(rounded.scale));
  to.tensors.push_back({info.name + "_scale", "BF16", {W.rows(), groups(W)}, [&scale](FileWriter& out) {
                          out.write(scale.data(), scale.size() * sizeof(uint16_t));
                        }});
  to.tensors.push_back({info.name, "I8", W.shape, [W, &to](FileWriter& out) {
                          const Int8 again(W);
                          out.write(again.code.data(), again.code.size());
                          to.done(W);
                        }});
}

}  // namespace

int64_t quantized_bytes(const WeightSet& set, WeightFormat format) {
  int64_t bytes = 0;
  for (const WeightInfo& info : set.list()) {
    const Shape& s = info.shape;
    if (!is_matrix(info.kind))
      bytes += 4 * s.numel();
    else if (format == WeightFormat::kInt8)
      bytes += s.numel() + 2 * s.rows() * ((s.cols() + kGroup - 1) / kGroup);
    else
      bytes += 2 * s.numel();
  }
  return bytes;
}

std::vector<QuantizedMatrix> save_quantized(const fs::path& folder, const Model& model, const Tokenizer& tokenizer,
                                            WeightFormat format,
                                            const std::function<void(int64_t done, int64_t of)>& progress) {
  require(format != WeightFormat::kF32, "quantize: fp32 is the format of every model; expected bf16 or int8");
  require_not_quantized(model.config(), folder, "quantizing");
  const WeightSet& set = model.weights;
  const fs::path path = folder / "model.safetensors";
  Writing writing;
  writing.scales.reserve(set.list().size());  // what is told to write them refers to them
  int64_t done = 0;
  const int64_t passes = format == WeightFormat::kInt8 ? 2 : 1;
  writing.done = [&](CF32 W) {
    done += W.numel();
    if (progress) progress(std::min(done, passes * set.numel()), passes * set.numel());
  };
  for (size_t i = 0; i < set.list().size(); i++) {
    const WeightInfo& info = set.list()[i];
    if (!is_matrix(info.kind))
      writing.tensors.push_back(streamed({info.name, set.at(i)}, StoreAs::kF32, path));
    else if (format == WeightFormat::kInt8)
      add_int8(writing, info, set.at(i));
    else
      add_bf16(writing, info, set.at(i), path);
    writing.done(set.at(i));
  }
  write_safetensors(path, std::move(writing.tensors));
  tokenizer.save(folder);
  ModelConfig config = model.config();
  config.quantized = format;
  nlohmann::json json = to_json(config);
  if (tokenizer.is_bytes()) json["tokenizer"] = "bytes";
  replace_file(folder / "config.json", json.dump(2) + "\n");
  return std::move(writing.matrices);
}

}  // namespace isobath
