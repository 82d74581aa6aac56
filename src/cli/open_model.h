// Models and runs that a user names.
#pragma once

#include <string>

#include "generate/load.h"

namespace isobath::cli {

// A line on standard error where the checkpoint that is used is not the one that `latest` names.
void warn_of_passed_over(const std::string& path);

// load_model() behind that warning.
LoadedModel open_model(const std::string& path);

}  // namespace isobath::cli
