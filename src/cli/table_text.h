// A table in a terminal: the first column to the left, the others to the right.
#pragma once

#include <string>

#include "lab/html.h"

namespace isobath::cli {

std::string table_text(const HtmlTable& table);

}  // namespace isobath::cli
