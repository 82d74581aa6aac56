#include "base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace isobath {

std::string with_letter(double value) {
  const char* letters[] = {"", "k", "M", "G", "T", "P", "E"};
  int i = 0;
  while (std::abs(value) >= 999.5 && i < 6) {
    value /= 1000;
    i++;
  }
  if (i == 0 && value == std::floor(value)) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}{}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, letters[i]);
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int i = 0;
  while (bytes >= 999.5 && i < 4) {
    bytes /= 1000;
    i++;
  }
  return fmt::format("{:.{}f} {}", bytes, i == 0 || bytes >= 99.95 ? 0 : 1, units[i]);
}

std::string duration_text(double seconds) {
  const int64_t s = std::max<int64_t>(0, std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

}  // namespace isobath
