#include "cli/table_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace isobath::cli {

std::string table_text(const HtmlTable& table) {
  std::vector<size_t> width;
  const auto widen = [&](const std::vector<std::string>& row) {
    width.resize(std::max(width.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); i++) width[i] = std::max(width[i], row[i].size());
  };
  widen(table.head);
  for (const auto& row : table.rows) widen(row);
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    text += fmt::format("{:<{}}", row[0], width[0]);
    for (size_t i = 1; i < row.size(); i++) text += fmt::format("   {:>{}}", row[i], width[i]);
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
  };
  add(table.head);
  for (const auto& row : table.rows) add(row);
  return text;
}

}  // namespace isobath::cli
