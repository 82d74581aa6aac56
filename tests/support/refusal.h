// What code says when it refuses.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"

namespace isobath::testing {

// The message of the Error that `work` throws.
inline std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "(accepted)";
}

}  // namespace isobath::testing
