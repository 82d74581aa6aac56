#include "base/json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace isobath {
namespace {

using nlohmann::json;

// Builds the value as the library's own builder does, but sees every key before it would overwrite an older one.
class Builder : public json::json_sax_t {
 public:
  Builder(std::string_view text, const std::string& what, JsonForm form) : text_(text), what_(what), form_(form) {}
  json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(int64_t value) override { return put(value); }
  bool number_unsigned(uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(json::binary_t& value) override { return put(std::move(value)); }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    const auto [at, fresh] = open_.back()->emplace(std::move(name), nullptr);
    if (!fresh && form_ == JsonForm::kStrict)
      fail("{} holds the key {} twice in one object", what_, in_quotes(at.key()));
    member_ = &at.value();
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& e) override {
    constexpr int kOutOfRange = 406;
    require(e.id != kOutOfRange, "{} holds a number beyond the range of float64 before byte {}", what_, byte);
    const auto line = 1 + std::count(text_.begin(), text_.begin() + int64_t(std::min(byte, text_.size())), '\n');
    fail("{} is not UTF-8 JSON: wrong at byte {} (line {})", what_, byte, line);
  }

 private:
  json& place(json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_object()) return *member_ = std::move(value);
    open_.back()->push_back(std::move(value));
    return open_.back()->back();
  }
  bool put(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json empty) {
    constexpr size_t kMaxDepth = 128;
    require(open_.size() < kMaxDepth, "{} nests deeper than {}", what_, kMaxDepth);
    open_.push_back(&place(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& what_;
  JsonForm form_;
  json root_;
  std::vector<json*> open_;  // the objects and arrays around the current place, outermost first
  json* member_ = nullptr;   // the value of the key that was read last
};

}  // namespace

json parse_json(std::string_view text, const std::string& what, JsonForm form) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  require(form == JsonForm::kLenient || !text.starts_with(kMark), "{} starts with a byte order mark, expected JSON",
          what);
  const size_t nul = text.find('\0');  // the parser would take it for the end of the text
  require(nul == text.npos, "{} holds a NUL byte at {}; JSON is padded with spaces", what, nul);
  Builder builder(text, what, form);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string in_quotes(std::string_view name) {
  constexpr size_t kLongest = 120;
  std::string text = json(name).dump(-1, ' ', true, json::error_handler_t::replace);  // ASCII only
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...\"";
  return text;
}

}  // namespace isobath
