// The specifications themselves, without data: Vega 5 (vega.github.io/vega/docs).
#pragma once

namespace isobath {

inline constexpr int kExpertColours = 10;  // of kExpertMap, which begin again with the next expert

extern const char* const kLearningCurves;  // training, validation {twin, flops, loss}; baseline {name, loss}
extern const char* const kRoutingShares;   // shares {block, share, C}
extern const char* const kRouterWeights;   // bins {block, low, high, choice, from, to}
extern const char* const kEntropyByDepth;  // depths {depth, share, p5, p25, p50, p75, p95}
extern const char* const kTokenMap;        // cells {token, block, dense, text}; letters {token, text}
extern const char* const
    kExpertMap;                  // cells {token, block, kind, part, of, expert, colour, tip}; letters {token, text}
extern const char* const kScan;  // shares {twin, value, low, median, high}; ratios {the same, limit}

}  // namespace isobath
