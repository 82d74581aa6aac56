#include <cstdio>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/held_out.h"
#include "cli/new_folder.h"
#include "cli/open_model.h"
#include "cli/table_text.h"
#include "cli/terminal.h"
#include "generate/quantize.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string model, type, out, by = "both";
  HeldOutFlags text;
  bool json = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath quantize runs/tiny --type int8 --out tiny-int8 --path text.txt    and what it costs in loss\n"
    "  isobath quantize llama-folder --type bf16 --out llama-bf16                without a text the loss is not "
    "measured\n"
    "  isobath generate tiny-int8 --prompt 'In the beginning'\n"
    "Matrices are stored as `generate --weights` would round them; embedding, norms, routers and predictors stay fp32.";

int64_t tensor_bytes(const fs::path& folder) {
  const TensorFolder tensors(folder);
  int64_t bytes = 0;
  for (const std::string& name : tensors.names()) bytes += int64_t(tensors.at(name).bytes.size());
  return bytes;
}

// Per section the matrix whose relative error is the largest.
std::vector<QuantizedMatrix> worst_of_each(const std::vector<QuantizedMatrix>& matrices) {
  std::vector<QuantizedMatrix> worst;
  for (const QuantizedMatrix& m : matrices) {
    if (worst.empty() || worst.back().section != m.section)
      worst.push_back(m);
    else if (m.relative_error > worst.back().relative_error)
      worst.back() = m;
  }
  return worst;
}

struct Losses {
  Way way;
  Evaluation before, after;
};

struct Report {
  int64_t bytes_before = 0, bytes_after = 0;
  std::vector<QuantizedMatrix> worst;
  std::vector<Losses> losses;
  double bytes_per_token = 0;
};

std::string text_of(const Report& r, const Arguments& a) {
  HtmlTable table{{"relative error", "largest", "of"}, {}};
  for (const QuantizedMatrix& m : r.worst)
    table.rows.push_back({m.section < 0 ? "head" : fmt::format("section {}", m.section),
                          fmt::format("{:.3f}%", 100 * m.relative_error), m.name});
  std::string text = table_text(table);
  for (const Losses& l : r.losses)
    text += loss_text((std::string(l.way.name) + " before").c_str(), l.before, r.bytes_per_token) +
            loss_text((std::string(l.way.name) + " after").c_str(), l.after, r.bytes_per_token) +
            fmt::format("{:<14} {:+.5f} nats/token\n", "  difference", l.after.loss - l.before.loss);
  if (r.losses.empty()) text += "the loss was not measured; give held-out text (--path)\n";
  return text + fmt::format("weights {} before, {} after: {:.2f} times smaller\nquantized: {}\n",
                            bytes_text(double(r.bytes_before)), bytes_text(double(r.bytes_after)),
                            double(r.bytes_before) / double(r.bytes_after), a.out);
}

nlohmann::json to_json(const Report& r, const Arguments& a) {
  nlohmann::json json{{"out", a.out},
                      {"type", a.type},
                      {"bytes_before", r.bytes_before},
                      {"bytes_after", r.bytes_after},
                      {"worst", nlohmann::json::array()},
                      {"loss_measured", !r.losses.empty()}};
  for (const QuantizedMatrix& m : r.worst)
    json["worst"].push_back({{"name", m.name}, {"section", m.section}, {"relative_error", m.relative_error}});
  for (const Losses& l : r.losses)
    json[l.way.name] = {{"before", loss_json(l.before, r.bytes_per_token)},
                        {"after", loss_json(l.after, r.bytes_per_token)}};
  return json;
}

// What is read back is what is judged. Returns whether the user has not had enough.
bool measure_after(Report& report, std::optional<HeldOut>& text, const fs::path& folder) {
  const LoadedModel written = load_model(folder);
  if (report.losses.empty()) written.model->prepare(1);  // packs, and so looks at every number
  for (Losses& l : report.losses) {
    l.after = text->run(*written.model, {.by = l.way.by});
    if (!l.after.complete) return false;
  }
  return true;
}

int run_quantize(const Arguments& a) {
  constexpr int kInterrupted = 130;
  const LoadedModel loaded = open_model(a.model);
  require_not_quantized(loaded.model->config(), a.model, "quantize");
  const WeightFormat format = weight_format(a.type);
  NewFolder out(a.out);
  out.require_room(quantized_bytes(loaded.model->weights, format));
  Report report;
  report.bytes_before = tensor_bytes(loaded.folder);
  std::optional<HeldOut> text;
  if (!a.text.path.empty()) text.emplace(loaded, a.text);
  catch_signals();
  if (text) {
    report.bytes_per_token = text->bytes_per_token();
    for (const Way& way : ways_of(loaded.model->config(), a.by, a.model)) {
      report.losses.push_back({way, text->run(*loaded.model, {.by = way.by}), {}});
      if (!report.losses.back().before.complete) return kInterrupted;
    }
    loaded.model->products.reset();
  }
  const fs::path& part = out.part();
  Progress progress("weight");
  report.worst = worst_of_each(save_quantized(part, *loaded.model, loaded.tokenizer, format,
                                              [&](int64_t done, int64_t of) { progress.update(done, of, ""); }));
  progress.clear();
  report.bytes_after = tensor_bytes(part);
  if (!measure_after(report, text, part) || interrupted()) return kInterrupted;
  out.appear();
  std::printf("%s%s", a.json ? to_json(report, a).dump(2).c_str() : text_of(report, a).c_str(), a.json ? "\n" : "");
  return 0;
}

}  // namespace

void add_quantize(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("quantize", "Store a model's matrices in fewer bits");
  command->footer(kFooter);
  command->add_option("model", a->model, "run, checkpoint, or Hugging Face Llama folder")->required();
  command->add_option("--type", a->type, "int8 (groups of 32 with a scale) or bf16")
      ->check(CLI::IsMember({"int8", "bf16"}))
      ->required();
  command->add_option("--out", a->out, "folder of the new model")->required();
  CLI::Option* path = a->text.add_path(*command, "; the loss on it is measured before and after");
  command->add_option("--by", a->by, "how rows are chosen when the loss is measured")
      ->check(CLI::IsMember({"both", "topk", "causal"}))
      ->capture_default_str();
  a->text.add_windows(*command);
  for (const char* of_text : {"--by", "--split", "--context", "--batch", "--windows", "--max-documents"})
    command->get_option(of_text)->needs(path);
  add_threads(*command);
  command->add_flag("--json", a->json, "print a JSON object");
  command->callback([a, &run] { run = [a] { return run_quantize(*a); }; });
}

}  // namespace isobath::cli
