// What this process holds of the machine's memory.
#pragma once

#include <cstdint>
#include <optional>

namespace isobath {

// Bytes in memory that belong to no file: heap, stacks, arenas, as far as they were touched. Of the whole process, so
// differences tell what something took. Linux counts by the page and, where it granted them, by huge pages of 2 MiB;
// the kernel may lag some hundred kilobytes behind. None where the system does not tell.
std::optional<int64_t> anonymous_bytes();

// Gives memory that a mapping of this process holds back to the system, in whole pages within [at, at + bytes). It can
// be used as before; numbers in those pages are zero.
void give_back(void* at, int64_t bytes);

}  // namespace isobath
