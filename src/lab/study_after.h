// What a study takes from the records of one that went before it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/options.h"

namespace isobath {

// A record of the dense model with the lowest mean loss over seeds at a budget. Throws Error if there is none.
const nlohmann::json& best_dense(const std::vector<nlohmann::json>& records, double budget);

// All of [model], of a record's model.
void take_model(RunConfig& config, const nlohmann::json& record);

// The learning rate of the lowest mean loss among models of that width and variant, at the budget of theirs that is
// nearest to this one by ratio: the best rate falls as runs grow longer. Throws Error if there is none.
double best_rate(const std::vector<nlohmann::json>& records, double budget, int64_t width, const std::string& variant);

// The record of a run that an earlier study has trained on the same text; null: none. It is the same run if all options
// that decide its result are.
const nlohmann::json* trained_before(const std::vector<nlohmann::json>& records, const std::string& run,
                                     uint64_t corpus);

}  // namespace isobath
