#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/table_text.h"
#include "lab/isoflop_charts.h"
#include "lab/study_page.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::vector<std::string> folders;
  std::string out = "report.html", figures;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath report runs/routing-hours --out routing.html        a study's records as one page, which opens offline\n"
    "  isobath report runs/dense runs/mod                          plain runs, side by side\n"
    "  isobath report runs/routing-hours --figures figures         numbers (CSV) and Vega specifications of the "
    "figures\n"
    "Each figure of the page can be saved as SVG, PNG or CSV from the page.";

// A slip of the hand must not cost a file that is no page.
void require_page_or_none(const fs::path& path) {
  std::error_code error;
  require(!path.filename().empty() && !fs::is_directory(path, error), "--out '{}' is not the name of a page",
          path.string());
  if (!fs::exists(path, error)) return;
  std::string start(9, ' ');
  std::ifstream(path, std::ios::binary).read(start.data(), std::streamsize(start.size()));
  require(start == "<!DOCTYPE", "{} is there and is no page; name another file (--out)", path.string());
}

int run_report(const Arguments& a) {
  require_writable(parent_folder(a.out));
  require_page_or_none(a.out);
  std::vector<std::string> warnings;
  const StudyReport report = gather_report({a.folders.begin(), a.folders.end()}, warnings);
  for (const std::string& warning : warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  const auto recipes = summarize(report.records);
  std::printf("%s\n", table_text(summary_table(recipes)).c_str());
  for (const HtmlTable& table : {best_sizes_table(recipes), scaling_table(recipes)})
    if (!table.rows.empty()) std::printf("%s\n", table_text(table).c_str());
  const std::string vega = vega_script();
  Page page = study_page(report, vega);
  replace_file(a.out, page.finish());
  std::printf("page: %s%s\n", a.out.c_str(),
              vega.empty() ? " (without charts: install the Debian package libjs-vega)" : "");
  if (a.figures.empty()) return 0;
  write_figures(a.figures, page);
  std::printf("figures: %s\n", a.figures.c_str());
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("report", "Write what studies or runs found as one HTML page");
  command->footer(kFooter);
  command->add_option("folders", a->folders, "folders of studies (isobath sweep) or of runs (isobath train)")
      ->required();
  command->add_option("--out", a->out, "the page")->capture_default_str();
  command->add_option("--figures", a->figures, "folder for the numbers and the Vega specification of every figure");
  add_threads(*command);
  command->callback([a, &run] { run = [a] { return run_report(*a); }; });
}

}  // namespace isobath::cli
