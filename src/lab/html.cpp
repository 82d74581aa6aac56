#include "lab/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lab/page_parts.h"

namespace isobath {
namespace {

// The modules that our charts need, each after the ones it requires. Debian ships Vega as these and not as one file;
// loaded one after the other as plain scripts each would replace the global that the one before it set.
constexpr std::array kVegaModules{"vega-util",
                                  "vega-time",
                                  "vega-format",
                                  "vega-loader",
                                  "vega-dataflow",
                                  "vega-statistics",
                                  "vega-canvas",
                                  "vega-scale",
                                  "vega-scenegraph",
                                  "vega-expression",
                                  "vega-selection",
                                  "vega-event-selector",
                                  "vega-functions",
                                  "vega-runtime",
                                  "vega-encode",
                                  "vega-transforms",
                                  "vega-view-transforms",
                                  "vega-view",
                                  "vega-parser"};

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// In a string or a pattern "<\/script" is the same text, and no module says "</script" anywhere else.
std::string script_safe(std::string code) { return replace_all(std::move(code), "</script", "<\\/script"); }

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '\t':
      case '\n':
        out += c;
        break;
      default:
        if (uint8_t(c) < 0x20 || c == 0x7F)
          out += "\xEF\xBF\xBD";
        else
          out += c;
    }
  }
  return out;
}

std::string json_for_script(const nlohmann::json& json) {
  using Json = nlohmann::json;
  return replace_all(json.dump(-1, ' ', true, Json::error_handler_t::replace), "<", "\\u003c");
}

std::string table_html(const HtmlTable& table) {
  std::string out = "<div class=\"scroll\"><table>\n";
  const auto row = [&](const std::vector<std::string>& cells, bool head) {
    out += "<tr>";
    for (size_t i = 0; i < cells.size(); i++) {
      const char* tag = head || i == 0 ? "th" : "td";
      const char* scope = head ? " scope=\"col\"" : i == 0 ? " scope=\"row\"" : "";
      out += fmt::format("<{}{}>{}</{}>", tag, scope, escape_html(cells[i]), tag);
    }
    out += "</tr>\n";
  };
  if (!table.head.empty()) {
    out += "<thead>";
    row(table.head, true);
    out += "</thead>";
  }
  out += "<tbody>\n";
  for (const auto& cells : table.rows) row(cells, false);
  return out + "</tbody></table></div>\n";
}

std::string chart_csv(const nlohmann::json& spec) {
  std::vector<std::string> columns;
  std::vector<const nlohmann::json*> sets;
  for (const nlohmann::json& set : spec.at("data")) {
    if (!set.contains("values")) continue;
    sets.push_back(&set);
    for (const nlohmann::json& row : set["values"])
      for (const auto& [key, value] : row.items())
        if (key != "tip" && std::find(columns.begin(), columns.end(), key) == columns.end()) columns.push_back(key);
  }
  const auto cell = [](const nlohmann::json& value) {
    std::string text = value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    return '"' + replace_all(text, "\"", "\"\"") + '"';
  };
  std::string text = "set";
  for (const std::string& column : columns) text += "," + cell(column);
  text += "\n";
  for (const nlohmann::json* set : sets)
    for (const nlohmann::json& row : (*set)["values"]) {
      text += cell((*set)["name"]);
      for (const std::string& column : columns) text += "," + (row.contains(column) ? cell(row[column]) : "");
      text += "\n";
    }
  return text;
}

std::string vega_script(const fs::path& folder) {
  std::string modules;
  for (const char* name : kVegaModules) {
    const fs::path file = folder / (std::string(name) + ".min.js");
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) return "";
    std::string code = read_file(file);
    // Its comment names a map that lies beside the module and not beside our page.
    if (const size_t map = code.rfind("//# sourceMappingURL"); map != std::string::npos) code.resize(map);
    modules +=
        fmt::format("define({}, function (exports, module, require) {{\n{}\n}});\n", nlohmann::json(name).dump(), code);
  }
  return fmt::format(fmt::runtime(kVegaLoader), fmt::arg("modules", script_safe(modules)));
}

Page::Page(std::string title, std::string subtitle, std::string vega)
    : title_(std::move(title)), subtitle_(std::move(subtitle)), vega_(std::move(vega)) {}

void Page::section(std::string_view heading, std::string_view note) {
  if (open_) body_ += "</section>\n";
  open_ = true;
  body_ += fmt::format("<section>\n<h2>{}</h2>\n", escape_html(heading));
  if (!note.empty()) body_ += fmt::format("<p class=\"note\">{}</p>\n", escape_html(note));
}

void Page::html(std::string_view html) { body_ += html; }

void Page::chart(nlohmann::json spec, const HtmlTable& instead, Numbers numbers, std::string_view name) {
  body_ += fmt::format(
      "<div class=\"chart\" id=\"chart-{}\" data-name=\"{}\"></div>\n<details class=\"numbers\"{}><summary>the "
      "numbers</summary>\n{}"
      "</details>\n",
      charts_.size(), escape_html(name), numbers == Numbers::kShown ? " open" : "", table_html(instead));
  charts_.push_back({std::string(name), std::move(spec)});
}

std::string Page::finish() {
  if (open_) body_ += "</section>\n";
  open_ = false;
  nlohmann::json specs = nlohmann::json::array();
  for (const NamedSpec& chart : charts_) specs.push_back(chart.spec);
  std::string scripts;
  if (!vega_.empty()) scripts += "<script>\n" + vega_ + "</script>\n";
  scripts += "<script type=\"application/json\" id=\"charts\">" + json_for_script(specs) + "</script>\n";
  scripts += std::string("<script>\n") + kPageScript + "</script>\n";
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{0}</title>\n"
      "<style>\n{1}</style>\n</head>\n<body>\n<header>\n<h1>{0}</h1>\n<p>{2}</p>\n</header>\n<main>\n{3}</main>\n"
      "{4}</body>\n</html>\n",
      escape_html(title_), kPageStyle, escape_html(subtitle_), body_, scripts);
}

}  // namespace isobath
