#include "cli/flags.h"

#include <algorithm>
#include <type_traits>

namespace isobath::cli {
namespace {

template <class T>
concept Enum = std::is_enum_v<T>;

std::string flag_names(std::string key) {
  std::string dashed = key;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed == key ? "--" + key : "--" + dashed + ",--" + key;
}

template <class T>
std::string shown(const T& value) {
  if constexpr (Enum<T>)
    return name_of(value);
  else if constexpr (std::is_same_v<T, std::string>)
    return value;
  else if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::is_arithmetic_v<T>)
    return fmt::format("{}", value);
  else
    return fmt::format("{}", fmt::join(value, ","));
}

}  // namespace

void OptionFlags::add(CLI::App& app, const std::vector<std::string>& sections) {
  RunConfig defaults;
  for_each_option(defaults, [&](const char* section, const char* key, auto& value, const char* help) {
    using T = std::decay_t<decltype(value)>;
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) return;
    // The option is found again by its place in the list, which is the same for every RunConfig.
    const auto store = [this, section, key](const T& given) {
      given_.push_back([section, key, given](RunConfig& config) {
        for_each_option(config, [&](const char* s, const char* k, auto& option, const char*) {
          if constexpr (std::is_same_v<std::decay_t<decltype(option)>, T>)
            if (std::string_view(s) == section && std::string_view(k) == key) option = given;
        });
      });
    };
    CLI::Option* option;
    if constexpr (Enum<T>) {
      option = app.add_option_function<std::string>(
          flag_names(key),
          [store](const std::string& word) {
            for (size_t i = 0; i < kNames<T>.size(); i++)
              if (word == kNames<T>[i]) return store(T(i));
          },
          help);
      option->check(CLI::IsMember(std::vector<std::string>(kNames<T>.begin(), kNames<T>.end())));
    } else {
      option = app.add_option_function<T>(flag_names(key), store, help);
      if constexpr (std::is_unsigned_v<T> && !std::is_same_v<T, bool>) option->check(not_negative);
      if constexpr (requires { value.push_back(value[0]); } && !std::is_same_v<T, std::string>)
        option->delimiter(',')->allow_extra_args(false);  // what follows may be the config
    }
    option->default_str(shown(value))->group(section);
  });
}

}  // namespace isobath::cli
