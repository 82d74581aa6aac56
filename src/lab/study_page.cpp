#include "lab/study_page.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "base/error.h"
#include "checkpoint/checkpoints.h"
#include "generate/load.h"
#include "lab/isoflop_charts.h"
#include "lab/record.h"
#include "lab/report.h"
#include "train/trainer.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

// Runs below a study's folder that were kept.
std::vector<fs::path> kept_runs(const fs::path& study) {
  std::vector<fs::path> runs;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(study / "runs", none)) runs.push_back(entry.path());
  std::sort(runs.begin(), runs.end());
  return runs;
}

// Whether the run became the report's trace.
bool try_trace(StudyReport& report, const fs::path& run, const std::string& name, std::vector<std::string>& warnings) {
  if (!latest_checkpoint(run)) return false;
  try {
    const LoadedModel loaded = load_model(run);
    const ModelConfig& config = loaded.model->config();
    if (config.routed_blocks() == 0) return false;
    const RunConfig options = stored_options(find_model_folder(run));
    const Corpus corpus = Corpus::load(options.data.path, loaded.tokenizer, options.data.valid_path);
    loaded.model->prepare(trace_rows(*loaded.model));
    const SelectBy by = config.has_causal_rule() ? SelectBy::kCausal : SelectBy::kTopK;
    report.trace = trace_text(*loaded.model, passage_of(corpus.valid), {.by = by});
    report.tokenizer = loaded.tokenizer;
    report.traced = name;
    return true;
  } catch (const Error& error) {
    warnings.push_back(fmt::format("{}: no map of its routing: {}", run.string(), error.what()));
    return false;
  }
}

std::string machines_text(const std::vector<Json>& records) {
  std::vector<std::string> machines;
  for (const Json& record : records) {
    const Json& m = record["measured"];
    const std::string machine = m["machine"].get<std::string>();
    if (machine.empty()) continue;
    const std::string text = fmt::format("{}, threads per run: {}, {}, isobath {}", machine, m["threads"].get<int>(),
                                         m["simd"].get<std::string>(), m["version"].get<std::string>());
    if (std::find(machines.begin(), machines.end(), text) == machines.end()) machines.push_back(text);
  }
  return fmt::format("{}", fmt::join(machines, "; "));
}

}  // namespace

StudyReport gather_report(const std::vector<fs::path>& folders, std::vector<std::string>& warnings) {
  StudyReport report;
  std::vector<std::string> names;
  std::set<std::string> known;  // runs: studies may share some
  for (const fs::path& folder : folders) {
    Records found = read_records(folder);
    warnings.insert(warnings.end(), found.faults.begin(), found.faults.end());
    const bool study = !found.records.empty();
    require(study || found.faults.empty(), "{}: no record can be used; the first: {}", folder.string(),
            found.faults.empty() ? "" : found.faults[0]);
    if (!study) found.records.push_back(record_of_run(folder));
    const std::string name = fs::weakly_canonical(folder).filename().string();
    const std::string title = study ? found.records[0]["study"].get<std::string>() : name;
    if (std::find(names.begin(), names.end(), title) == names.end()) names.push_back(title);
    int64_t again = 0;
    for (Json& record : found.records) {
      const std::string run = study ? record["run"].get<std::string>() + record.value("corpus", Json("")).dump()
                                    : fs::weakly_canonical(folder).string();
      if (known.insert(run).second)
        report.records.push_back(std::move(record));
      else
        again++;
    }
    if (again > 0)
      warnings.push_back(
          fmt::format("{}: {} of its runs are in an earlier folder too; they count once", folder.string(), again));
    const std::vector<fs::path> runs = study ? kept_runs(folder) : std::vector{folder};
    for (size_t i = 0; i < runs.size() && !report.trace; i++)
      try_trace(report, runs[i], study ? runs[i].filename().string() : name, warnings);
  }
  report.title = fmt::format("{}", fmt::join(names, ", "));
  return report;
}

Page study_page(const StudyReport& report, const std::string& vega) {
  const std::vector<RecipeSummary> recipes = summarize(report.records);
  Page page(report.title,
            fmt::format("{} models, {} runs. Losses are nats per token of the whole validation text. {}",
                        recipes.size(), report.records.size(), machines_text(report.records)),
            vega);
  page.section("The models",
               "Mean and standard deviation over seeds; causal shares are of the routed sections, from "
               "the lowest to the highest.");
  page.html(table_html(summary_table(recipes)));
  if (const HtmlTable sizes = best_sizes_table(recipes); !sizes.rows.empty()) {
    page.section("Best sizes", "Of each budget, by the parabolas below; FLOPs are those of a forward pass.");
    page.html(table_html(sizes));
  }
  if (const HtmlTable scaling = scaling_table(recipes); !scaling.rows.empty()) {
    page.section("Scaling", "From the best sizes of the budgets.");
    page.html(table_html(scaling));
  }
  for (const Figure& figure : study_figures(recipes)) {
    page.section(figure.title, figure.note);
    page.chart(figure.chart.spec, figure.chart.table, Page::Numbers::kFolded, figure.name);
  }
  if (report.trace) {
    page.section("Inside one model", fmt::format("What the routers of {} do with the validation text.", report.traced));
    add_routing(page, *report.trace, report.tokenizer);
  }
  return page;
}

void write_figures(const fs::path& folder, const Page& page) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail("cannot make the folder {}: {}", folder.string(), error.message());
  for (const auto& [name, chart] : page.charts()) {
    replace_file(folder / (name + ".csv"), chart_csv(chart));
    Json spec = chart;
    spec["$schema"] = "https://vega.github.io/schema/vega/v5.json";
    spec["width"] = 640;
    spec["background"] = "white";
    replace_file(folder / (name + ".vg.json"), spec.dump(1) + "\n");
  }
}

}  // namespace isobath
