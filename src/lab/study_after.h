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

// The learning rate of the lowest mean loss among models of that width and variant. Throws Error if there is none.
double best_rate(const std::vector<nlohmann::json>& records, int64_t width, const std::string& variant);

}  // namespace isobath
