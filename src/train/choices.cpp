#include "train/choices.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "model/network.h"
#include "text/utf8.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

ChoiceQuestion question_of(const Json& json, const std::string& place) {
  const auto text_at = [&](const Json& value, const char* what) {
    require(value.is_string(), "{}: {} is {}, expected text", place, what, value.dump());
    return value.get<std::string>();
  };
  require(json.is_object() && json.contains("context") && json.contains("choices") && json.contains("answer"),
          R"({}: expected {{"context": "...", "choices": ["...", "..."], "answer": 0}})", place);
  ChoiceQuestion question{.context = text_at(json["context"], "context"), .choices{}};
  require(json["choices"].is_array() && json["choices"].size() >= 2, "{}: choices is {}, expected two texts or more",
          place, json["choices"].dump());
  for (const Json& choice : json["choices"]) {
    question.choices.push_back(text_at(choice, "a choice"));
    require(!question.choices.back().empty(), "{}: a choice is empty", place);
  }
  const Json& answer = json["answer"];
  require(answer.is_number_integer() && answer >= 0 && answer < question.choices.size(),
          "{}: answer is {}, expected the right choice, counted from 0 to {}", place, answer.dump(),
          question.choices.size() - 1);
  question.answer = answer;
  return question;
}

// One choice as the model reads it: tokens, of which those from `first` on are the choice.
struct Reading {
  size_t question, choice;
  std::vector<int32_t> token;
  int64_t first = 0;
};

class Reader {
 public:
  Reader(const Tokenizer& tokenizer, const ChoiceOptions& options)
      : tokenizer_(tokenizer), encoder_(tokenizer), options_(options) {}

  Reading read(const ChoiceQuestion& q, size_t question, size_t choice) {
    const size_t blanks = q.context.size() - (q.context.find_last_not_of(" \t\n\r\f\v") + 1);
    const std::string context = q.context.substr(0, q.context.size() - blanks);
    const std::string rest = q.context.substr(context.size()) + options_.delimiter + q.choices[choice];
    Reading reading{.question = question, .choice = choice, .token{}};
    const int32_t start = tokenizer_.bos() >= 0 ? tokenizer_.bos() : tokenizer_.eos();
    const bool begins = context.empty() || tokenizer_.adds_bos();
    require(!begins || start >= 0, "question {} has no context, and the tokenizer no token that could begin a text",
            question + 1);
    if (begins) reading.token.push_back(start);
    encoder_.encode(context, false, reading.token);
    reading.first = int64_t(reading.token.size());
    reading.token.resize(begins ? 1 : 0);
    encoder_.encode(context + rest, false, reading.token);
    // Where context and choice melt into one token, it is the choice's.
    reading.first = std::clamp<int64_t>(reading.first, 1, int64_t(reading.token.size()) - 1);
    return shortened(std::move(reading));
  }
  int64_t count_shortened() const { return shortened_; }

 private:
  // The last T + 1 tokens: T are read, the last is only foretold.
  Reading shortened(Reading reading) {
    const int64_t size = int64_t(reading.token.size()), over = size - options_.T - 1;
    if (over <= 0) return reading;
    require(size - reading.first <= options_.T,
            "question {}: choice {} has {} tokens, and the model reads {} at once (--context)", reading.question + 1,
            reading.choice, size - reading.first, options_.T);
    shortened_++;
    reading.token.erase(reading.token.begin(), reading.token.begin() + over);
    reading.first -= over;
    return reading;
  }

  const Tokenizer& tokenizer_;
  Encoder encoder_;
  const ChoiceOptions& options_;
  int64_t shortened_ = 0;
};

// Readings side by side in one list of rows, each a sequence of its own.
class Packed {
 public:
  void clear() { *this = Packed(); }
  int64_t rows() const { return int64_t(token_.size()); }
  int64_t sequences() const { return int64_t(id_.size()); }
  int64_t begin(int64_t s) const { return begin_[size_t(s)]; }

  void add(const Reading& reading, int64_t id) {
    for (int64_t i = 0; i + 1 < int64_t(reading.token.size()); i++) {
      token_.push_back(reading.token[size_t(i)]);
      target_.push_back(i + 1 < reading.first ? -1 : reading.token[size_t(i) + 1]);
      position_.push_back(int32_t(i));
      sequence_.push_back(int32_t(id_.size()));
    }
    begin_.push_back(int32_t(rows()));
    id_.push_back(id);
  }
  Batch batch() const {
    const int64_t N = rows(), S = sequences();
    return {.token{token_.data(), {N}},
            .target{target_.data(), {N}},
            .position{position_.data(), {N}},
            .capacity_begin{begin_.data(), {S + 1}},
            .segment_begin{begin_.data(), {S + 1}},
            .sequence{sequence_.data(), {N}},
            .sequence_id{id_.data(), {S}}};
  }

 private:
  std::vector<int32_t> token_, target_, position_, sequence_, begin_{0};
  std::vector<int64_t> id_;
};

size_t best_of(const std::vector<double>& values) {
  return size_t(std::max_element(values.begin(), values.end()) - values.begin());
}

double characters(std::string_view text) {
  return double(std::count_if(text.begin(), text.end(), [](char c) { return (uint8_t(c) & 0xC0) != 0x80; }));
}

void count_answers(ChoiceResult& result, std::span<const ChoiceQuestion> questions) {
  for (size_t q = 0; q < result.log_likelihood.size(); q++) {
    const ChoiceQuestion& question = questions[q];
    std::vector<double> ll = result.log_likelihood[q];
    result.likeliest.right += best_of(ll) == size_t(question.answer);
    for (size_t c = 0; c < ll.size(); c++) ll[c] /= characters(question.choices[c]);
    result.per_character.right += best_of(ll) == size_t(question.answer);
    result.chance += 1 / double(ll.size());
  }
  const auto of = int64_t(result.log_likelihood.size());
  result.likeliest.of = result.per_character.of = of;
  result.chance /= double(std::max<int64_t>(1, of));
}

}  // namespace

std::vector<ChoiceQuestion> read_choices(const fs::path& path) {
  std::vector<ChoiceQuestion> questions;
  std::istringstream lines(read_file(path));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = fmt::format("{}:{}", path.string(), ++number);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    questions.push_back(question_of(parse_json(line, place), place));
  }
  require(!questions.empty(), "{}: no questions", path.string());
  return questions;
}

double Accuracy::share() const { return of > 0 ? double(right) / double(of) : 0; }
double Accuracy::error() const { return of > 1 ? std::sqrt(share() * (1 - share()) / double(of - 1)) : 0; }

ChoiceResult answer_choices(Model& model, const Tokenizer& tokenizer, std::span<const ChoiceQuestion> questions,
                            const Selection& how, const ChoiceOptions& options,
                            const std::function<void(int64_t done, int64_t of)>& progress,
                            const std::function<bool()>& stop) {
  const ModelConfig& config = model.config();
  require(options.T >= 1 && options.T <= config.max_position_embeddings && options.B >= 1,
          "choices: {} tokens and {} choices at a time; expected 1 to {} and 1 or more", options.T, options.B,
          config.max_position_embeddings);
  Reader reader(tokenizer, options);
  std::vector<Reading> readings;
  int64_t longest = 1;
  for (size_t q = 0; q < questions.size(); q++)
    for (size_t c = 0; c < questions[q].choices.size(); c++) {
      readings.push_back(reader.read(questions[q], q, c));
      longest = std::max(longest, int64_t(readings.back().token.size()) - 1);
    }
  const BatchLimits limits{.sequences = std::min<int64_t>(options.B, int64_t(readings.size())), .T = longest};
  model.prepare(limits.rows());
  Activations acts(config, limits, Purpose::kForward);
  ChoiceResult result;
  result.shortened = reader.count_shortened();
  Packed packed;
  for (size_t first = 0; first < readings.size(); first += size_t(limits.sequences)) {
    if (stop && stop()) {
      result.complete = false;
      break;
    }
    packed.clear();
    const size_t end = std::min(readings.size(), first + size_t(limits.sequences));
    for (size_t i = first; i < end; i++) packed.add(readings[i], int64_t(i));
    const Batch batch = packed.batch();
    forward_blocks(model.weights.weights(), *model.products, acts, config, batch, how);
    forward_loss(model.weights.weights(), *model.products, acts, config, batch);
    for (size_t i = first; i < end; i++) {
      double ll = 0;  // rows in order, whatever the batch: the same bits
      for (int64_t n = packed.begin(int64_t(i - first)); n < packed.begin(int64_t(i - first) + 1); n++)
        ll -= double(acts.loss[n]);
      if (!std::isfinite(ll))
        fail_work("question {}: a choice has the log-likelihood {}", readings[i].question + 1, ll);
      if (readings[i].choice == 0) result.log_likelihood.emplace_back();
      result.log_likelihood.back().push_back(ll);
    }
    if (progress) progress(int64_t(readings[end - 1].question) + 1, int64_t(questions.size()));
  }
  if (!result.log_likelihood.empty() &&
      result.log_likelihood.back().size() < questions[result.log_likelihood.size() - 1].choices.size())
    result.log_likelihood.pop_back();
  count_answers(result, questions);
  return result;
}

}  // namespace isobath
