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

}  // namespace isobath
