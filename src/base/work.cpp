#include "base/work.h"

namespace isobath {

Profile::Profile() : outer_(active_profile) { active_profile = this; }
Profile::~Profile() { active_profile = outer_; }

const Profile::Op* Profile::find(std::string_view name) const {
  for (const Op& op : ops())
    if (name == op.name) return &op;
  return nullptr;
}

Profile::Op& Profile::entry(const char* name, bool product) {
  for (size_t i = 0; i < count_; i++)
    if (name == ops_[i].name || std::string_view(name) == ops_[i].name) return ops_[i];
  if (count_ == kMostOps) name = "others", product = false;
  if (count_ > kMostOps) return ops_[kMostOps];
  ops_[count_].name = name;
  ops_[count_].product = product;
  return ops_[count_++];
}

void Work::begin(const char* name, bool product) {
  name_ = name;
  product_ = product;
  caller_ = profile_->innermost_;
  profile_->innermost_ = this;
  inside_ = {};
  multiply_adds_ = executed_multiply_adds.load(std::memory_order_relaxed);
  bytes_ = executed_bytes.load(std::memory_order_relaxed);
  start_ = Clock::now();
}

void Work::end() {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const int64_t multiply_adds = executed_multiply_adds.load(std::memory_order_relaxed) - multiply_adds_;
  const int64_t bytes = executed_bytes.load(std::memory_order_relaxed) - bytes_;
  Profile::Op& op = profile_->entry(name_, product_);
  op.calls++;
  op.multiply_adds += multiply_adds - inside_.multiply_adds;
  op.bytes += bytes - inside_.bytes;
  op.seconds += seconds - inside_.seconds;
  profile_->innermost_ = caller_;
  if (caller_ == nullptr) return;
  caller_->inside_.multiply_adds += multiply_adds;
  caller_->inside_.bytes += bytes;
  caller_->inside_.seconds += seconds;
}

}  // namespace isobath
