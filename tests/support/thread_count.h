// So many threads for as long as this lives.
#pragma once

#include "base/parallel.h"

namespace isobath::testing {

class ThreadCount {
 public:
  explicit ThreadCount(int n) : before_(thread_count()) { set_thread_count(n); }
  ThreadCount(const ThreadCount&) = delete;
  ~ThreadCount() { set_thread_count(before_); }

 private:
  int before_;
};

}  // namespace isobath::testing
