// Pages of HTML that open anywhere, offline: everything is in the one file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace isobath {

// Text as HTML shows it: markup characters become entities, control characters (but tab and newline) U+FFFD.
std::string escape_html(std::string_view text);

// JSON that may stand in a <script>: no text in it can end the element.
std::string json_for_script(const nlohmann::json& json);

// A table. The first cell of a row is its name; cells are text and are escaped here.
struct HtmlTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};
std::string table_html(const HtmlTable& table);

// The rows of a specification's data sets, in one table with a column `set`: what is behind the chart (RFC 4180).
std::string chart_csv(const nlohmann::json& spec);

// Where Debian's package libjs-vega puts the modules of Vega, which draw the charts.
inline constexpr const char* kVegaFolder = "/usr/share/javascript/vega";

// A script that sets window.vega, made of the modules in the folder; empty if they are not there.
std::string vega_script(const fs::path& folder = kVegaFolder);

class Page {
 public:
  // `vega`: vega_script(), or empty; then charts show their tables and what to install.
  Page(std::string title, std::string subtitle, std::string vega);

  void section(std::string_view heading, std::string_view note = "");  // text, escaped; ends the section before
  void html(std::string_view html);                                    // as it is
  // A Vega specification; `instead` is the same as a table: folded below unless it says more, and open where Vega is
  // missing.
  enum class Numbers : uint8_t { kFolded, kShown };
  // `name`: of the files that a reader saves it as.
  void chart(nlohmann::json spec, const HtmlTable& instead, Numbers numbers = Numbers::kFolded,
             std::string_view name = "");

  std::string finish();

  // The charts so far, in their order.
  struct NamedSpec {
    std::string name;
    nlohmann::json spec;
  };
  const std::vector<NamedSpec>& charts() const { return charts_; }

 private:
  std::string title_, subtitle_, vega_, body_;
  std::vector<NamedSpec> charts_;
  bool open_ = false;
};

}  // namespace isobath
