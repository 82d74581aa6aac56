// Numbers as people read them.
#pragma once

#include <string>

namespace isobath {

// 12.3k, 4.56M, 1.20G: three digits and a letter.
std::string with_letter(double value);
// "4.2 MB", "1.3 GB"
std::string bytes_text(double bytes);
// "42 s", "3 min 20 s", "2 h 05 min"
std::string duration_text(double seconds);

}  // namespace isobath
