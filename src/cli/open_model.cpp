#include "cli/open_model.h"

#include "checkpoint/checkpoints.h"
#include "cli/terminal.h"

namespace isobath::cli {

void warn_of_passed_over(const std::string& path) {
  if (const std::string text = passed_over(path); !text.empty()) warn(text);
}

LoadedModel open_model(const std::string& path) {
  warn_of_passed_over(path);
  return load_model(path);
}

}  // namespace isobath::cli
