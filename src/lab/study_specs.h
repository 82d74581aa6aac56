// Two specifications that the figures of studies share, without data: Vega 5.
#pragma once

namespace isobath {

// Series over a quantity. points {series, x, y, low, high, tip}, joined where `join`; lines {series, x, y};
// optima {series, x, y, low, high}: a point and its interval along x; series {name}: their order.
extern const char* const kSeries;
// A row per label. dots {label, series, x, low, high, tip}; series {name}.
extern const char* const kDots;

}  // namespace isobath
