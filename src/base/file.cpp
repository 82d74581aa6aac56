#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"

namespace isobath {
namespace {

std::string reason() { return std::strerror(errno); }

int open_for_reading(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("cannot read {}: {}", path.string(), reason());
  struct stat info {};
  if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
    ::close(fd);
    fail("cannot read {}: it is a folder, expected a file", path.string());
  }
  return fd;
}

}  // namespace

std::string read_file(const fs::path& path) {
  const int fd = open_for_reading(path);
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const std::string why = reason();
      ::close(fd);
      fail("cannot read {}: {}", path.string(), why);
    }
    if (got == 0) break;
    bytes.append(buffer, size_t(got));
  }
  ::close(fd);
  return bytes;
}

void replace_file(const fs::path& path, std::string_view bytes) {
  FileWriter out(path);
  out.write(bytes);
  out.commit();
}

FileWriter::FileWriter(const fs::path& path) : path_(path), part_(path) {
  part_ += ".part";
  fd_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_work("cannot write {}: {}", path_.string(), reason());
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(part_.c_str());
}

void FileWriter::write(const void* bytes, size_t count) {
  const char* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t put = ::write(fd_, next, count);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_work("cannot write {}: {}", path_.string(), reason());
    next += put;
    count -= size_t(put);
  }
}

void FileWriter::commit() {
  if (::fsync(fd_) != 0) fail_work("cannot flush {}: {}", path_.string(), reason());
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 || ::rename(part_.c_str(), path_.c_str()) != 0) {
    const std::string why = reason();
    ::unlink(part_.c_str());
    fail_work("cannot write {}: {}", path_.string(), why);
  }
  sync_folder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // a file system that cannot open folders cannot flush them either
  ::fsync(fd);
  ::close(fd);
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const int fd = open_for_reading(path);
  struct stat info {};
  ::fstat(fd, &info);
  size_ = size_t(info.st_size);
  if (size_ > 0) {
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) {
      const std::string why = reason();
      ::close(fd);
      fail("cannot map {}: {}", path.string(), why);
    }
    data_ = static_cast<const std::byte*>(at);
  }
  ::close(fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace isobath
