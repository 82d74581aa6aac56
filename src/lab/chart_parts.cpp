#include "lab/chart_parts.h"

namespace isobath {

using Json = nlohmann::json;

Json with_data(const char* spec, std::initializer_list<std::pair<const char*, Json>> sets) {
  Json chart = Json::parse(spec);
  Json data = Json::array();
  for (const auto& [name, values] : sets) data.push_back({{"name", name}, {"values", values}});
  for (const Json& derived : chart.value("data", Json::array())) data.push_back(derived);
  chart["data"] = data;
  return chart;
}

void set_signal(Json& spec, const char* name, const Json& value) {
  for (Json& signal : spec["signals"])
    if (signal["name"] == name) signal["value"] = value;
}

std::vector<std::string> token_labels(const Trace& trace, const Tokenizer& tokenizer, int64_t count) {
  std::vector<std::string> labels(static_cast<size_t>(count));
  for (const Piece& piece : pieces_of(trace, tokenizer, count)) {
    const std::string& shown = piece.text == "\n" ? "\u21B5" : piece.text == " " ? "\u00B7" : piece.text;
    for (int64_t n = piece.first; n < piece.end; n++) labels[size_t(n)] = shown;
  }
  return labels;
}

}  // namespace isobath
