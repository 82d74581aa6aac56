#include "lab/study.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/units.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

constexpr std::array kSections{"model", "routing", "experts", "data", "train"};

// What a study says elsewhere, or what follows from where a run lies.
bool is_reserved(std::string_view section, std::string_view key) {
  return section == "train" && (key == "steps" || key == "tokens" || key == "flops" || key == "seed" || key == "out");
}

void refuse_reserved(const TomlFile& file, const Json& sections, const std::string& pointer) {
  for (const auto& [section, options] : sections.items())
    for (const auto& [key, value] : options.items())
      if (is_reserved(section, key))
        fail(
            "{}: {}.{} is not an option of a study; [study] has flops or tokens, and seeds, and --out names the folder",
            file.place(pointer + "/" + section + "/" + key), section, key);
}

// The tables of options below `pointer`, as changes; checked against a config that is thrown away.
std::vector<Change> changes_at(const TomlFile& file, const Json& sections, const std::string& pointer) {
  RunConfig scratch;
  set_options(scratch, file, sections, pointer);
  refuse_reserved(file, sections, pointer);
  std::vector<Change> changes;
  for (const auto& [section, options] : sections.items())
    for (const auto& [key, value] : options.items())
      changes.push_back({section, key, value, file.place(pointer + "/" + section + "/" + key)});
  return changes;
}

std::vector<StudyPoint> points_at(const TomlFile& file, const char* kind) {
  std::vector<StudyPoint> points;
  const Json list = file.json().value(kind, Json::array());
  require(list.is_array(), "{}: {} is one table; write [[{}]]", file.place(std::string("/") + kind), kind, kind);
  std::set<std::string> names;
  for (Json table : list) {
    const std::string pointer = fmt::format("/{}/{}", kind, points.size()), place = file.place(pointer);
    const auto name = table.find("name");
    require(table.is_object() && name != table.end() && name->is_string(), "{}: this {} has no name", place, kind);
    StudyPoint point;
    point.name = *name;
    table.erase("name");
    if (const auto as = table.find("flops_as"); as != table.end()) {
      require(std::string_view(kind) == "variant" && as->is_string(), "{}: flops_as is {}, expected a variant's name",
              file.place(pointer + "/flops_as"), as->dump());
      point.flops_as = *as;
      table.erase("flops_as");
    }
    require(names.insert(point.name).second, "{}: there are two of the name '{}'", place, point.name);
    point.changes = changes_at(file, table, pointer);
    points.push_back(std::move(point));
  }
  return points;
}

std::vector<std::vector<StudyPoint>> grid_of(const TomlFile& file) {
  std::vector<std::vector<StudyPoint>> grid;
  const Json sections = file.json().value("grid", Json::object());
  for (const auto& [section, options] : sections.items()) {
    require(options.is_object(), "{}: grid.{} is no option; write section.key = [values]",
            file.place("/grid/" + section), section);
    for (const auto& [key, values] : options.items()) {
      const std::string pointer = "/grid/" + section + "/" + key, place = file.place(pointer);
      require(values.is_array() && !values.empty(), "{}: grid.{}.{} is {}, expected a list of values", place, section,
              key, values.dump());
      std::vector<StudyPoint> axis;
      for (const Json& value : values) {
        RunConfig scratch;
        if (!set_option(scratch, section, key, value, place))
          fail("{}: unknown key {}.{}; 'isobath train --help' lists them all", place, section, key);
        refuse_reserved(file, Json{{section, {{key, value}}}}, "/grid");
        axis.push_back(
            {.name = fmt::format("{} = {}", key, value.is_string() ? value.get<std::string>() : value.dump()),
             .changes = {{section, key, value, place}},
             .parameters = 0,
             .flops_as{}});
      }
      grid.push_back(std::move(axis));
    }
  }
  return grid;
}

// One number or a list of them, each above 0.
template <class Number>
std::vector<Number> numbers_of(const Json& value, const std::string& place, const char* key) {
  std::vector<Number> numbers;
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& item : list) {
    const bool fits = std::is_integral_v<Number> ? item.is_number_integer() : item.is_number();
    require(fits && item.get<double>() > 0, "{}: {} is {}, expected numbers above 0", place, key, item.dump());
    numbers.push_back(item.get<Number>());
  }
  require(!numbers.empty(), "{}: {} is empty", place, key);
  require(std::set(numbers.begin(), numbers.end()).size() == numbers.size(), "{}: {} names one twice", place, key);
  return numbers;
}

void read_head(Study& study, const TomlFile& file) {
  const Json head = file.json().value("study", Json::object());
  for (const auto& [key, value] : head.items()) {
    const std::string place = file.place("/study/" + key);
    if (key == "flops" || key == "tokens") {
      require(study.budgets.empty(), "{}: expected budgets in flops or in tokens, not both", place);
      study.budgets = numbers_of<double>(value, place, key == "flops" ? "study.flops" : "study.tokens");
      study.in_tokens = key == "tokens";
      for (const double budget : study.budgets)
        require(!study.in_tokens || budget < 1e15, "{}: study.tokens is {:.3g}, expected less than 1e15", place,
                budget);
    } else if (key == "seeds")
      study.seeds = numbers_of<uint64_t>(value, place, "study.seeds");
    else if (key == "parameters")
      for (const double count : numbers_of<double>(value, place, "study.parameters"))
        study.sizes.push_back({.name = with_letter(count), .changes{}, .parameters = count, .flops_as{}});
    else if (key == "learning_rates" && value == "best")
      study.best_rates = true;
    else if (key == "title" && value.is_string())
      study.title = value;
    else if (key == "keep_checkpoints" && value.is_boolean())
      study.keep_checkpoints = value;
    else
      fail(
          "{}: study.{} = {}: expected flops or tokens, seeds, parameters (numbers), title (text), "
          "keep_checkpoints (true or false), learning_rates (\"best\")",
          place, key, value.dump());
  }
  require(!study.budgets.empty(), "{}: there is no budget; write [study] flops = [1e13], or tokens",
          file.place("/study"));
}

}  // namespace

Study read_study(const fs::path& path) {
  const TomlFile file(path);
  Study study;
  study.name = path.stem().string();
  Json base = Json::object();
  for (const auto& [section, table] : file.json().items()) {
    if (std::find(kSections.begin(), kSections.end(), section) != kSections.end())
      base[section] = table;
    else if (section != "study" && section != "size" && section != "variant" && section != "grid")
      fail("{}: unknown section [{}]; expected study, size, variant, grid, model, routing, experts, data or train",
           file.place("/" + section), section);
  }
  read_head(study, file);
  set_options(study.base, file, base, "");
  refuse_reserved(file, base, "");
  for (StudyPoint& point : points_at(file, "size")) study.sizes.push_back(std::move(point));
  study.variants = points_at(file, "variant");
  study.grid = grid_of(file);
  return study;
}

StudyPart parse_part(const std::string& text) {
  StudyPart part;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, part.index);
  bool good = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  if (good) {
    const auto second = std::from_chars(first.ptr + 1, end, part.of);
    good = second.ec == std::errc() && second.ptr == end && part.of >= 1 && part.index >= 1 && part.index <= part.of;
  }
  require(good, "part '{}', expected I/N with I from 1 to N, such as 2/8", text);
  return part;
}

}  // namespace isobath
