#include "tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace isobath {

void Plan::push(std::string name, Shape shape, int64_t item_bytes, int64_t alignment,
                std::function<void(std::byte*)> bind) {
  const int64_t bytes = shape.numel() * item_bytes;
  const int64_t offset = (end_ + alignment - 1) / alignment * alignment;
  end_ = offset + bytes;
  peak_ = std::max(peak_, end_);
  entries_.push_back({std::move(name), shape, bytes, offset, std::move(bind)});
}

void Plan::add_scratch(std::string name, View<std::byte>& view, int64_t bytes) {
  const Shape shape{bytes};
  scratch_bytes_ = std::max(scratch_bytes_, bytes);
  scratch_.push_back({std::move(name), shape, bytes, 0, [&view, shape](std::byte* at) { view = {at, shape}; }});
}

Arena::Arena(const Plan& plan) : bytes_(size_t(plan.bytes())) {
  if (bytes_ > 0) {
    // Mapped rather than malloc'ed: zero pages, returned whole, and huge pages on a 2 MiB boundary.
    void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
      fail("cannot allocate {:.1f} MB of memory; lower batch, context or model size (see 'isobath plan')",
           double(bytes_) / 1e6);
    ::madvise(at, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(at);
  }
  for (const Plan::Entry& entry : plan.entries()) entry.bind(data_ + entry.offset);
  for (const Plan::Entry& entry : plan.scratch()) entry.bind(data_ + plan.scratch_offset());
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace isobath
