#include "lab/study.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/error.h"
#include "model/weights.h"
#include "train/budget.h"
#include "train/trainer.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

constexpr std::array kSections{"model", "routing", "data", "train"};

// What a study says elsewhere, or what follows from where a run lies.
bool is_reserved(std::string_view section, std::string_view key) {
  return section == "train" && (key == "steps" || key == "tokens" || key == "flops" || key == "seed" || key == "out");
}

// What decides nothing of a result: where things lie, how often it is looked at, what is computed twice.
bool is_incidental(std::string_view key) {
  return key == "path" || key == "valid_path" || key == "tokenizer" || key == "out" || key == "keep" ||
         key == "threads" || key == "recompute" || key == "pack" || key.starts_with("eval_") ||
         key.starts_with("save_");
}

void refuse_reserved(const TomlFile& file, const Json& sections, const std::string& pointer) {
  for (const auto& [section, options] : sections.items())
    for (const auto& [key, value] : options.items())
      if (is_reserved(section, key))
        fail("{}: {}.{} is not an option of a study; [study] has flops and seeds, and --out names the folder",
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
    StudyPoint point{name->get<std::string>(), {}};
    table.erase("name");
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
        axis.push_back({fmt::format("{} = {}", key, value.is_string() ? value.get<std::string>() : value.dump()),
                        {{section, key, value, place}}});
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
    if (key == "flops")
      study.flops = numbers_of<double>(value, place, "study.flops");
    else if (key == "seeds")
      study.seeds = numbers_of<uint64_t>(value, place, "study.seeds");
    else if (key == "title" && value.is_string())
      study.title = value;
    else if (key == "keep_checkpoints" && value.is_boolean())
      study.keep_checkpoints = value;
    else
      fail("{}: study.{} = {}: expected flops, seeds (numbers), title (text), keep_checkpoints (true or false)", place,
           key, value.dump());
  }
  require(!study.flops.empty(), "{}: there is no budget; write [study] flops = [1e13]", file.place("/study"));
}

template <class T>
std::string hash_name(const T& json) {
  return fmt::format("{:016x}", hash_bytes(json.dump()));
}

Json deciding_options(const RunConfig& config) {
  Json changed = changed_options(config);
  for (auto& [section, options] : changed.items())
    for (auto at = options.begin(); at != options.end();) at = is_incidental(at.key()) ? options.erase(at) : ++at;
  for (const char* section : kSections)
    if (changed.contains(section) && changed[section].empty()) changed.erase(section);
  return changed;
}

// The options of a run, made comparable: a model of which nothing is routed has no routing.
RunConfig config_of(const Study& study, const std::vector<const StudyPoint*>& points, double flops, uint64_t seed) {
  RunConfig config = study.base;
  for (const StudyPoint* point : points)
    for (const Change& change : point->changes)
      set_option(config, change.section, change.key, change.value, change.place);
  if (config.model.routing.topology == Topology::kDense) config.model.routing = RoutingConfig();
  config.train.flops = flops;
  config.train.seed = seed;
  return config;
}

PlannedRun plan_run(const RunConfig& config, const Tokenizer& tokenizer) {
  PlannedRun run;
  run.config = config;
  run.changed = deciding_options(config);
  run.name = hash_name(run.changed);
  Json recipe = run.changed;
  if (recipe.contains("train")) recipe["train"].erase("seed");
  run.recipe = hash_name(recipe);
  RunConfig full = config;
  if (full.data.path.empty()) full.data.path = "text";  // a plan needs none
  full = resolved(full, tokenizer);
  const double T = double(full.data.context);
  run.parameters = count_weights(full.model);
  run.flops_per_token = double(model_flops(full.model, 1, full.data.context).forward()) / T;
  run.dense_flops_per_token = double(model_flops(dense_twin(full.model), 1, full.data.context).forward()) / T;
  const RoutingConfig& r = full.model.routing;
  const bool ragged = r.capacity_scope == Scope::kDocument || r.attention_scope == Scope::kDocument;
  run.budget =
      ragged ? plan_budget(full.model, full.data.batch, full.data.context, full.train.flops) : budget_of(full, nullptr);
  return run;
}

using Points = std::vector<const StudyPoint*>;

// Every combination of one point of each axis; the last axis changes fastest.
std::vector<Points> combinations(const std::vector<const std::vector<StudyPoint>*>& axes) {
  std::vector<Points> all{{}};
  for (const auto* axis : axes) {
    std::vector<Points> longer;
    for (const Points& before : all)
      for (const StudyPoint& point : *axis) {
        longer.push_back(before);
        longer.back().push_back(&point);
      }
    all = std::move(longer);
  }
  return all;
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
      fail("{}: unknown section [{}]; expected study, size, variant, grid, model, routing, data or train",
           file.place("/" + section), section);
  }
  read_head(study, file);
  set_options(study.base, file, base, "");
  refuse_reserved(file, base, "");
  study.sizes = points_at(file, "size");
  study.variants = points_at(file, "variant");
  study.grid = grid_of(file);
  return study;
}

std::string PlannedRun::label() const {
  std::string text = variant;
  const auto add = [&](const std::string& more) { text += (text.empty() || more.empty() ? "" : ", ") + more; };
  add(size);
  for (const auto& [key, value] : grid.items())
    add(fmt::format("{} = {}", key.substr(key.find('.') + 1), value.dump()));
  add(fmt::format("{:.3g} FLOPs, seed {}", config.train.flops, config.train.seed));
  return text;
}

std::vector<PlannedRun> plan_study(const Study& study, const Tokenizer& tokenizer) {
  std::vector<const std::vector<StudyPoint>*> axes;
  if (!study.sizes.empty()) axes.push_back(&study.sizes);
  for (const auto& axis : study.grid) axes.push_back(&axis);
  if (!study.variants.empty()) axes.push_back(&study.variants);
  std::vector<PlannedRun> runs;
  std::set<std::string> names;
  for (const uint64_t seed : study.seeds)
    for (const double flops : study.flops)
      for (const Points& points : combinations(axes)) {
        PlannedRun run;
        const std::string label = [&] {
          std::vector<std::string> parts;
          for (const StudyPoint* point : points) parts.push_back(point->name);
          return fmt::format("{}", fmt::join(parts, ", "));
        }();
        try {
          run = plan_run(config_of(study, points, flops, seed), tokenizer);
        } catch (const Error& error) {
          fail("study {}: {}: {}", study.name, label.empty() ? "its runs" : label, error.what());
        }
        if (!study.sizes.empty()) run.size = points.front()->name;
        if (!study.variants.empty()) run.variant = points.back()->name;
        run.grid = Json::object();
        for (size_t axis = 0; axis < study.grid.size(); axis++) {
          const Change& change = points[axis + (study.sizes.empty() ? 0 : 1)]->changes[0];
          run.grid[change.name()] = change.value;
        }
        if (names.insert(run.name).second) runs.push_back(std::move(run));
      }
  return runs;
}

double predicted_seconds(const PlannedRun& run, double peak_gflop_s) {
  // Small products are bound by memory: about 45% of the peak at width 64, 71% at 384, 75% at 768.
  const double D = double(run.config.model.hidden_size), share = 0.8 * D / (D + 50);
  return run.budget.flops / (peak_gflop_s * 1e9 * share);
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
