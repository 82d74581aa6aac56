// What a study found, as one page and as files for papers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/html.h"
#include "lab/study_charts.h"
#include "lab/trace.h"

namespace isobath {

// Records of one study or of plain runs, and of one routed model that was kept what its routers do with the validation
// text.
struct StudyReport {
  std::string title;
  std::vector<nlohmann::json> records;
  std::string traced;  // the model's name
  std::optional<Trace> trace;
  Tokenizer tokenizer = Tokenizer::bytes();
};

// What is in the folders: records of studies, and runs. The first run of a routed model whose checkpoint and text are
// still there is traced; `warnings` says why others are not. Throws Error for a folder that is neither.
StudyReport gather_report(const std::vector<fs::path>& folders, std::vector<std::string>& warnings);

// Not finished: its charts are asked for, too.
Page study_page(const StudyReport& report, const std::string& vega = vega_script());

// NAME.csv and NAME.vg.json of every figure of a page: its numbers, and its specification for Vega's own renderers
// (vg2svg, vg2png).
void write_figures(const fs::path& folder, const Page& page);

}  // namespace isobath
