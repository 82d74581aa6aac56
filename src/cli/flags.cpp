#include "cli/flags.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "train/start_from.h"

namespace isobath::cli {
namespace {

std::string flag_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

// Without the list of words that CLI11's own check would put into the help.
std::string true_or_false(const std::string& word) {
  return word == "true" || word == "false" ? "" : word + ", expected true or false";
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

void add_formats(CLI::App& command, std::string& weights, std::string& kv) {
  command
      .add_option("--weights", weights,
                  "format that the weights are packed in: fp32, bf16 or int8; without: as a quantized model is stored, "
                  "else fp32")
      ->check(CLI::IsMember({"fp32", "bf16", "int8"}));
  command.add_option("--kv", kv, "format of keys and values: f32 or bf16")
      ->check(CLI::IsMember(std::vector<std::string>(kNames<Storage>.begin(), kNames<Storage>.end())))
      ->capture_default_str();
}

WeightFormat weight_format(const std::string& word) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16})
    if (word == name_of(format)) return format;
  return WeightFormat::kInt8;
}

void use_threads(int64_t threads) {
  if (threads > 0) set_thread_count(int(threads));
  const int count = thread_count();
  std::vector<std::thread> trial;  // OpenMP's runtime would end the program where it cannot start one
  std::atomic<bool> go = false;
  std::string why;
  try {
    for (int i = 1; i < count; i++) trial.emplace_back([&go] { go.wait(false); });
  } catch (const std::exception& error) {
    why = error.what();
  }
  const size_t started = trial.size() + 1;
  go = true;
  go.notify_all();
  for (std::thread& thread : trial) thread.join();
  require(why.empty(), "cannot start {} threads, only {}: {}; lower --threads", count, started, why);
  parallel_for(count, 0, [](int64_t) {});  // they stay
}

void add_threads(CLI::App& command) {
  const auto threads = std::make_shared<int64_t>(0);
  command.add_option("--threads", *threads, "0: as many as there are cores")
      ->check(CLI::Range(int64_t{0}, int64_t{1024}))
      ->default_str("0");
  command.parse_complete_callback([threads] { use_threads(*threads); });
}

void OptionFlags::add(CLI::App& app, const std::vector<std::string>& sections, RunConfig defaults) {
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
          flag_name(key), [store](const std::string& word) { store(*parse_name<T>(word)); }, help);
      option->check(CLI::IsMember(std::vector<std::string>(kNames<T>.begin(), kNames<T>.end())));
    } else if constexpr (std::is_same_v<T, bool>) {
      // --key, or --key=false: the word behind a space may be the config
      const auto word = std::make_shared<std::string>();
      option = app.add_flag(flag_name(key), *word, help)->check(true_or_false);
      option->each([store, word](const std::string& given) { store(given == "true"); });
    } else {
      option = app.add_option_function<T>(flag_name(key), store, help);
      if constexpr (std::is_unsigned_v<T>) option->check(not_negative);
      if constexpr (requires { value.push_back(value[0]); } && !std::is_same_v<T, std::string>)
        option->delimiter(',')->allow_extra_args(false);  // what follows may be the config
    }
    option->default_str(shown(value))->group(section);
  });
}

RunConfig given_options(const std::string& file, const OptionFlags& flags) {
  const auto over = [&](RunConfig config) {
    if (!file.empty()) read_toml(file, config);
    replace_budget(config.train, [&] { flags.apply(config); });
    return config;
  };
  RunConfig config = over({});
  if (!config.train.from.empty()) {
    RunConfig taken;
    take_architecture(taken, config.train.from);
    config = over(taken);
  }
  try {
    check_unused(config);
  } catch (const Error& error) {
    if (config.train.from.empty()) throw;
    fail("with what {} holds: {}", config.train.from, error.what());
  }
  return config;
}

}  // namespace isobath::cli
