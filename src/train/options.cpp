#include "train/options.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <type_traits>

#include "base/error.h"

namespace isobath {
namespace {

template <class T>
inline constexpr bool kIsList = false;
template <class T>
inline constexpr bool kIsList<std::vector<T>> = true;

// Names the key and where it stands.
struct Place {
  std::string file, key;
  int64_t line;
  [[noreturn]] void wrong(const toml::node& found, const std::string& expected) const {
    std::ostringstream text;
    found.visit([&](const auto& value) { text << value; });  // as it stands in the file
    fail("{}:{}: {} is {}, expected {}", file, line, key, text.str(), expected);
  }
};

template <class Number>
Number number_of(const toml::node& node, const Place& place) {
  if constexpr (std::is_integral_v<Number>) {
    if (const auto whole = node.as_integer()) {
      if (whole->get() < 0 && std::is_unsigned_v<Number>) place.wrong(node, "0 or more");
      return Number(whole->get());
    }
    place.wrong(node, "a whole number");
  } else {
    if (const auto real = node.value<double>()) return *real;
    place.wrong(node, "a number");
  }
}

template <class T>
void set(T& value, const toml::node& node, const Place& place) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!node.is_boolean()) place.wrong(node, "true or false");
    value = node.as_boolean()->get();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!node.is_string()) place.wrong(node, "text in quotes");
    value = node.as_string()->get();
  } else if constexpr (Enum<T>) {
    const auto named = node.is_string() ? parse_name<T>(node.as_string()->get()) : std::nullopt;
    if (!named) place.wrong(node, "one of " + names_of<T>());
    value = *named;
  } else if constexpr (kIsList<T>) {
    value.clear();
    using Item = typename T::value_type;
    if (const toml::array* list = node.as_array())
      for (const toml::node& item : *list) value.push_back(number_of<Item>(item, place));
    else
      value.push_back(number_of<Item>(node, place));
  } else {
    value = number_of<T>(node, place);
  }
}

}  // namespace

void read_toml(const fs::path& path, RunConfig& config) {
  const std::string text = read_file(path, kConfigBytes);
  // toml++ bounds how deep values nest, but takes a dotted key of any depth, and recurses.
  constexpr int64_t kMostDots = 4000;
  require(std::count(text.begin(), text.end(), '.') <= kMostDots,
          "{}: over {} dots, so that keys could nest deeper than can be read; expected sections of key = value",
          path.string(), kMostDots);
  toml::table file;
  try {
    file = toml::parse(text, path.string());
  } catch (const toml::parse_error& error) {
    fail("{}:{}: {}", path.string(), error.source().begin.line, error.description());
  }
  for (const auto& [section, node] : file) {
    const toml::table* table = node.as_table();
    if (table == nullptr)
      fail("{}:{}: {} stands outside a section; expected [model], [routing], [experts], [data] or [train] above it",
           path.string(), node.source().begin.line, section.str());
    for (const auto& [key, value] : *table) {
      bool known = false;
      for_each_option(config, [&](const char* in, const char* name, auto& option, auto) {
        if (section != in || key != name) return;
        known = true;
        set(option, value, {path.string(), fmt::format("{}.{}", in, name), value.source().begin.line});
      });
      if (!known)
        fail("{}:{}: unknown key {}.{}; 'isobath train --help' lists them all", path.string(),
             value.source().begin.line, section.str(), key.str());
    }
  }
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
  require(t.weight_decay >= 0 && t.clip >= 0, "train.weight_decay = {} and clip = {}, expected 0 or more",
          t.weight_decay, t.clip);
  require(t.capacity_anneal >= 0 && t.capacity_anneal <= double(int64_t{1} << 40),
          "train.capacity_anneal is {}, expected 0 or more: steps, or a share of the run below 1", t.capacity_anneal);
  require(t.keep >= 1, "train.keep is {}, expected 1 or more", t.keep);
  require(t.eval_every >= 0 && t.eval_windows >= 0 && t.save_every >= 0 && t.threads >= 0,
          "eval_every, eval_windows, save_every and threads must be 0 or more");
  require(t.threads <= 1024, "train.threads is {}, expected at most 1024", t.threads);
  require(!t.out.empty(), "train.out is empty: name a folder for the run (--out)");
}

void check_options(const RunConfig& c) {
  require(!c.data.path.empty(), "data.path is missing: name a text file or folder (--path)");
  check_ranges(c);
  require(budgets(c.train) == 1, "found 0 budgets, expected exactly one of --steps, --tokens, --flops");
}

}  // namespace isobath
