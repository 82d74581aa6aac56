#include "train/options.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "model/config_unused.h"
#include "ops/expert_choice.h"

namespace isobath {
namespace {

template <class T>
inline constexpr bool kIsList = false;
template <class T>
inline constexpr bool kIsList<std::vector<T>> = true;

// As it stands in the file.
std::string shown(const nlohmann::json& found) {
  if (found.is_string()) return "'" + found.get<std::string>() + "'";
  return found.is_number_float() ? fmt::format("{}", found.get<double>()) : found.dump();
}

template <class Number>
std::optional<Number> number_of(const nlohmann::json& found) {
  if (std::is_integral_v<Number> ? !found.is_number_integer() : !found.is_number()) return {};
  if (std::is_unsigned_v<Number> && found.get<double>() < 0) return {};
  return found.get<Number>();
}

template <class T>
std::string expected() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string>) return "text in quotes";
  if constexpr (Enum<T>) return "one of " + names_of<T>();
  if constexpr (kIsList<T>) return expected<typename T::value_type>();
  return std::is_unsigned_v<T> ? "a whole number, 0 or more" : std::is_integral_v<T> ? "a whole number" : "a number";
}

// None: not a value of this type.
template <class T>
std::optional<T> value_of(const nlohmann::json& found) {
  if constexpr (std::is_same_v<T, bool>) {
    return found.is_boolean() ? std::optional(found.get<bool>()) : std::nullopt;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return found.is_string() ? std::optional(found.get<std::string>()) : std::nullopt;
  } else if constexpr (Enum<T>) {
    return found.is_string() ? parse_name<T>(found.get<std::string>()) : std::nullopt;
  } else if constexpr (kIsList<T>) {
    T list;
    for (const nlohmann::json& item : found.is_array() ? found : nlohmann::json::array({found})) {
      const auto number = number_of<typename T::value_type>(item);
      if (!number) return {};
      list.push_back(*number);
    }
    return list;
  } else {
    return number_of<T>(found);
  }
}

}  // namespace

bool set_option(RunConfig& config, std::string_view section, std::string_view key, const nlohmann::json& value,
                const std::string& place) {
  bool known = false;
  for_each_option(config, [&](const char* in, const char* name, auto& option, auto) {
    if (section != in || key != name) return;
    known = true;
    using T = std::decay_t<decltype(option)>;
    std::optional<T> given = value_of<T>(value);
    if (!given) fail("{}: {}.{} is {}, expected {}", place, in, name, shown(value), expected<T>());
    option = std::move(*given);
  });
  return known;
}

void set_options(RunConfig& config, const TomlFile& file, const nlohmann::json& sections, const std::string& pointer) {
  for (const auto& [section, table] : sections.items()) {
    const std::string at = pointer + "/" + section;
    if (!table.is_object())
      fail("{}: {} stands outside a section; expected [model], [routing], [experts], [data] or [train] above it",
           file.place(at), section);
    for (const auto& [key, value] : table.items())
      if (const std::string place = file.place(at + "/" + key); !set_option(config, section, key, value, place))
        fail("{}: unknown key {}.{}; 'isobath train --help' lists them all", place, section, key);
  }
}

void read_toml(const fs::path& path, RunConfig& config) {
  const TomlFile file(path);
  set_options(config, file, file.json(), "");
}

nlohmann::json changed_options(const RunConfig& config) {
  const nlohmann::json all = options_to_json(config), defaults = options_to_json(RunConfig());
  nlohmann::json changed = nlohmann::json::object();
  for (const auto& [section, options] : all.items())
    for (const auto& [key, value] : options.items())
      if (value != defaults[section][key]) changed[section][key] = value;
  return changed;
}

std::string options_to_toml(const RunConfig& config) {
  std::string text;
  const nlohmann::json changed = changed_options(config);
  for (const auto& [section, options] : changed.items()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    for (const auto& [key, value] : options.items()) text += fmt::format("{} = {}\n", key, value.dump());
  }
  return text;
}

nlohmann::json options_to_json(const RunConfig& config) {
  nlohmann::json json;
  for_each_option(config, [&](const char* section, const char* key, const auto& value, auto) {
    if constexpr (Enum<std::decay_t<decltype(value)>>)
      json[section][key] = name_of(value);
    else
      json[section][key] = value;
  });
  return json;
}

void options_from_json(const nlohmann::json& json, RunConfig& config) {
  size_t found = 0, stored = 0;
  for_each_option(config, [&](const char* section, const char* key, auto& value, auto) {
    using T = std::decay_t<decltype(value)>;
    if (std::string_view(section) == "experts" && !json.contains(section)) return;  // the file is of an earlier version
    const auto in_section = json.at(section).find(key);
    if (in_section == json.at(section).end()) return;  // an option of a later version than the file's
    found++;
    if constexpr (Enum<T>) {
      const auto named = parse_name<T>(in_section->template get<std::string>());
      require(named.has_value(), "{}.{} is {}, expected one of {}", section, key, in_section->dump(), names_of<T>());
      value = *named;
    } else {
      value = in_section->template get<T>();
    }
  });
  for (const auto& section : json) stored += section.size();
  require(found == stored, "{} of its {} options are not known to this version", stored - found, stored);
}

namespace {

void check_sizes(const DataOptions& d) {
  require(d.context >= 1 && d.context < (1 << 24), "data.context is {}, expected 1 to 16777215", d.context);
  require(d.batch >= 1 && d.batch <= (int64_t{1} << 30) / d.context, "data.batch is {}, expected 1 to {} (2^30 tokens)",
          d.batch, (int64_t{1} << 30) / d.context);
  require(d.micro_batch >= 0 && d.micro_batch <= d.batch, "data.micro_batch is {}, expected 0 to batch ({})",
          d.micro_batch, d.batch);
  require(d.max_documents >= 0, "data.max_documents is {}, expected 0 or more", d.max_documents);
}

int budgets(const TrainOptions& t) { return (t.steps > 0) + (t.tokens > 0) + (t.flops > 0); }

void check_budget(const RunConfig& c) {
  const TrainOptions& t = c.train;
  require(t.steps >= 0 && t.tokens >= 0 && t.flops >= 0, "the budget is negative; expected steps, tokens or flops > 0");
  require(budgets(t) <= 1, "found {} budgets, expected exactly one of --steps, --tokens, --flops", budgets(t));
  require(t.steps <= kMostSequences / c.data.batch && t.tokens / c.data.context <= kMostSequences,
          "the budget is over {:.0e} sequences; lower --steps or --tokens", double(kMostSequences));
}

}  // namespace

void check_ranges(const RunConfig& c) {
  for_each_option(c, [](const char* section, const char* key, const auto& value, auto) {
    if constexpr (std::is_floating_point_v<std::decay_t<decltype(value)>>)
      require(std::isfinite(value), "{}.{} is {}, expected a finite number", section, key, value);
  });
  const TrainOptions& t = c.train;
  check_sizes(c.data);
  check_budget(c);
  require(t.learning_rate >= 0, "train.learning_rate is {}, expected 0 or more", t.learning_rate);
  require(t.warmup >= 0 && t.warmup <= 1, "train.warmup is {}, expected a share from 0 to 1", t.warmup);
  require(t.final_rate >= 0 && t.final_rate <= 1, "train.final_rate is {}, expected a share from 0 to 1", t.final_rate);
  require(t.beta1 >= 0 && t.beta1 < 1 && t.beta2 >= 0 && t.beta2 < 1,
          "train.beta1 = {} and beta2 = {}, expected at least 0 and below 1", t.beta1, t.beta2);
  require(t.weight_decay >= 0, "train.weight_decay is {}, expected 0 or more", t.weight_decay);
  require(t.clip >= 0, "train.clip is {}, expected 0 or more", t.clip);
  require(t.capacity_anneal >= 0 && t.capacity_anneal <= double(int64_t{1} << 40),
          "train.capacity_anneal is {}, expected 0 or more: steps, or a share of the run below 1", t.capacity_anneal);
  require(t.keep >= 1, "train.keep is {}, expected 1 or more", t.keep);
  require(t.eval_every >= 0 && t.eval_windows >= 0 && t.save_every >= 0 && t.threads >= 0,
          "eval_every, eval_windows, save_every and threads must be 0 or more");
  require(t.threads <= 1024, "train.threads is {}, expected at most 1024", t.threads);
  require(!t.out.empty(), "train.out is empty: name a folder for the run (--out)");
}

void check_unused(const RunConfig& c) {
  check_unused(c.model);
  const RoutingConfig& r = c.model.routing;
  const ExpertsConfig& e = c.model.experts;
  require(c.data.max_documents == 0 || r.capacity_scope == Scope::kDocument || r.attention_scope == Scope::kDocument,
          "data.max_documents = {} with both scopes = sequence, where no sequence ends at a document; set "
          "attention_scope = document, or max_documents = 0",
          c.data.max_documents);
  const bool bounded = c.model.has_experts() && e.no_op_capacity > 0 && c.data.context > 0;
  require(!bounded || kept_no_ops({.no_op_capacity = e.no_op_capacity}, c.data.context) > 0,
          "experts.no_op_capacity = {} of {} tokens is less than one, so that in training nothing would skip; set at "
          "least {}, or a longer context",
          e.no_op_capacity, c.data.context, std::ceil(1e4 / double(c.data.context)) / 1e4);
  if (c.train.capacity_anneal == 0 || r.topology == Topology::kDense) return;
  const bool falls = std::any_of(r.capacity.begin(), r.capacity.end(), [](double capacity) { return capacity < 1; }) ||
                     (r.capacity_schedule != CapacitySchedule::kConstant && r.capacity_last < 1);
  require(
      falls,
      "train.capacity_anneal = {} lets capacity fall from 1 to routing.capacity, which is 1; lower capacity, or set "
      "capacity_anneal = 0",
      c.train.capacity_anneal);
}

void check_options(const RunConfig& c) {
  require(!c.data.path.empty(), "data.path is missing: name a text file or folder (--path)");
  check_ranges(c);
  require(budgets(c.train) == 1, "found 0 budgets, expected exactly one of --steps, --tokens, --flops");
}

}  // namespace isobath
