// Multiple choice by log-likelihood, by the formulas of lm-evaluation-harness: the model's answer is the choice that it
// finds likeliest after the context.
//
//   {"context": "The sun rises in the", "choices": ["east", "west"], "answer": 0}      one JSON object per line
//
// A choice is read as context + delimiter + choice; blanks at the end of the context are counted to the choice. With
// c the tokens of the context alone and s those of the whole, ll = sum over i >= |c| of log p(s_i | s_<i). An empty
// context is the tokenizer's bos, else its eos. Of what is longer than the model's window the last tokens are read.
// Two ways to answer: the largest ll, and the largest ll per character of the choice.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/model.h"
#include "model/selection.h"
#include "text/tokenizer.h"

namespace isobath {

struct ChoiceQuestion {
  std::string context;
  std::vector<std::string> choices;  // two or more, none empty
  int64_t answer = 0;                // the right one
};

// Throws Error naming file and line for what is no such object, and for a file without any.
std::vector<ChoiceQuestion> read_choices(const fs::path& path);

struct Accuracy {
  int64_t right = 0, of = 0;
  double share() const;
  double error() const;  // standard error of the share, of a sample of `of` questions; 0 of one
};

struct ChoiceResult {
  Accuracy likeliest, per_character;
  double chance = 0;                                // accuracy of guessing
  int64_t shortened = 0;                            // choices whose context did not fit into the window
  std::vector<std::vector<double>> log_likelihood;  // by question and choice, nats
  bool complete = true;                             // false: stopped; of the questions that were finished
};

struct ChoiceOptions {
  int64_t T = 0;  // tokens that are read at once, at most
  int64_t B = 8;  // choices at a time; changes speed and memory, never the result
  std::string delimiter = " ";
};

// Prepares the model's products. `progress` hears of questions done; `stop` ends the work when it says so.
// Throws Error for a choice of more than T tokens.
ChoiceResult answer_choices(Model& model, const Tokenizer& tokenizer, std::span<const ChoiceQuestion> questions,
                            const Selection& how, const ChoiceOptions& options,
                            const std::function<void(int64_t done, int64_t of)>& progress = {},
                            const std::function<bool()>& stop = {});

}  // namespace isobath
