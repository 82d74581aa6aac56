// A main for fuzz targets where libFuzzer is missing: runs each file (or each file of a folder) as it is, cut short,
// and with single bytes changed. The changes are the same in every run.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace fs = std::filesystem;

namespace {

constexpr int64_t kChanges = 200;  // of each kind, per file

void run(const std::string& input) {
  const std::vector<uint8_t> exact(input.begin(), input.end());  // no spare byte: reading past the end is seen
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

void replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  run(whole);
  const isobath::Rng rng(whole.size(), isobath::Stream::kData);
  for (int64_t i = 0; i < kChanges && !whole.empty(); i++) {
    const int64_t at = rng.below(int64_t(whole.size()), uint64_t(i), 0);
    run(whole.substr(0, size_t(at)));
    std::string changed = whole;
    changed[size_t(at)] = char(rng.below(256, uint64_t(i), 1));
    run(changed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int64_t files = 0;
  for (int i = 1; i < argc; i++) {
    if (!fs::exists(argv[i])) {
      std::fprintf(stderr, "%s: there is no %s\n", argv[0], argv[i]);
      return 2;
    }
    if (fs::is_directory(argv[i])) {
      for (const auto& entry : fs::recursive_directory_iterator(argv[i]))
        if (entry.is_regular_file()) replay(entry.path()), files++;
    } else {
      replay(argv[i]), files++;
    }
  }
  std::printf("replayed %lld files, each with %lld changes of two kinds\n", static_cast<long long>(files),
              static_cast<long long>(kChanges));
  return files > 0 ? 0 : 2;
}
