// What an engine has done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace isobath {

struct LayerStatistics {
  int64_t rows = 0;    // that went through the layer
  int64_t no_ops = 0;  // of them, that took a no-op in place of an expert
  // Bytes of keys and values when the caches held most: of the rows that were routed to the layer; of the pages with
  // them, shared ones once; and what a dense model would need for the same tokens.
  int64_t kv_used_bytes = 0, kv_held_bytes = 0, kv_dense_bytes = 0;
};

// Tokens that were drafted, and what verification made of them. A round is one pass that verified.
struct Speculation {
  int64_t rounds = 0, drafted = 0, accepted = 0;
  double accepted_share() const { return drafted == 0 ? 0 : double(accepted) / double(drafted); }
  double mean_accepted() const { return rounds == 0 ? 0 : double(accepted) / double(rounds); }
};

struct Statistics {
  int64_t passes = 0;                             // but for those that draft
  int64_t prefill_tokens = 0, decode_tokens = 0;  // read in passes that read a prompt; in the others
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t drawn_tokens = 0;
  int64_t shared_tokens = 0;  // of prompts, that were not read again
  int64_t gave_way = 0;       // times that a request gave its pages back
  int64_t finished = 0;
  int64_t draft_passes = 0;
  double draft_seconds = 0;
  int64_t rejected_tokens = 0;              // rows of passes that verified, dropped again
  Speculation speculation = {};             // of all requests
  std::vector<LayerStatistics> layer = {};  // by section of the model

  int64_t rows() const { return prefill_tokens + decode_tokens + rejected_tokens; }  // but for drafts
  double share_run(size_t l) const { return rows() == 0 ? 0 : double(layer[l].rows) / double(rows()); }
  double no_op_share(size_t l) const {
    return layer[l].rows == 0 ? 0 : double(layer[l].no_ops) / double(layer[l].rows);
  }
  double prefill_tokens_per_second() const {
    return prefill_seconds > 0 ? double(prefill_tokens) / prefill_seconds : 0;
  }
  double decode_tokens_per_second() const {
    const double seconds = decode_seconds + draft_seconds;
    return seconds > 0 ? double(decode_tokens) / seconds : 0;
  }
};

}  // namespace isobath
