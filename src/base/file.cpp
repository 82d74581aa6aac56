#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace isobath {
namespace {

std::string reason() { return std::generic_category().message(errno); }

// Closed at the end of its scope, for descriptors that were only read from.
struct Descriptor {
  int fd;
  explicit Descriptor(int fd) : fd(fd) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

struct stat open_info(const Descriptor& file, const fs::path& path) {
  if (file.fd < 0) fail("cannot read {}: {}", path.string(), reason());
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) fail("cannot read {}: {}", path.string(), reason());
  if (S_ISDIR(info.st_mode)) fail("cannot read {}: it is a folder, expected a file", path.string());
  return info;
}

void require_regular(const struct stat& info, const fs::path& path) {
  require(S_ISREG(info.st_mode), "cannot read {}: it is a device or pipe, expected a file", path.string());
}

void require_length(const std::string& name, int64_t bytes, int64_t most) {
  require(bytes <= most, "cannot read {}: it is longer than {} MiB, the most that is read of its kind", name,
          most >> 20);
}

// ENOSYS, EINVAL and the like say that the file system has no such thing as flushing, not that bytes were lost.
bool cannot_flush() { return errno == EINVAL || errno == ENOSYS || errno == ENOTSUP || errno == EROFS; }

void flush(int fd, const fs::path& path) {
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    if (cannot_flush()) return;
    fail_work("cannot flush {}: {}", path.string(), reason());
  }
}

}  // namespace

std::string read_stream(int fd, const std::string& name, int64_t most) {
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got == 0) return bytes;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read {}: {}", name, reason());
    require_length(name, int64_t(bytes.size()) + got, most);
    bytes.append(buffer, size_t(got));
  }
}

std::string read_file(const fs::path& path, int64_t most) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // does not wait on a pipe
  const struct stat info = open_info(file, path);
  require_regular(info, path);
  require_length(path.string(), info.st_size, most);
  return read_stream(file.fd, path.string(), most);
}

std::string read_file_or_pipe(const fs::path& path, int64_t most) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISFIFO(info.st_mode)) return read_file(path, most);
  const Descriptor pipe(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  open_info(pipe, path);
  return read_stream(pipe.fd, path.string(), most);
}

void replace_file(const fs::path& path, std::string_view bytes) {
  FileWriter out(path);
  out.write(bytes);
  out.commit();
}

FileWriter::FileWriter(const fs::path& path) : path_(path), part_(path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    fail_work("cannot write {}: it is {}, expected a file", path.string(),
              S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
  part_ += ".part";
  ::unlink(part_.c_str());  // a killed writer's, or a link that leads elsewhere
  fd_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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
  flush(fd_, path_);
  const int fd = std::exchange(fd_, -1);
  const bool closed = ::close(fd) == 0 || errno == EINTR;  // Linux closes even when it is interrupted
  if (!closed || ::rename(part_.c_str(), path_.c_str()) != 0) {
    const std::string why = reason();
    ::unlink(part_.c_str());
    fail_work("cannot write {}: {}", path_.string(), why);
  }
  sync_folder(parent_folder(path_));
}

void sync_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) fail_work("cannot flush {}: {}", path.string(), reason());
  flush(file.fd, path);
}

void sync_folder(const fs::path& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.fd < 0 && errno == EACCES) return;  // a folder one may write in but not list
  if (folder.fd < 0) fail_work("cannot flush {}: {}", path.string(), reason());
  flush(folder.fd, path);
}

void require_writable(const fs::path& folder) {
  std::error_code error;
  const bool there = fs::is_directory(folder, error);
  require(there, "{}: no such folder; make it, or name another one", folder.string());
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    fail("cannot write in the folder {}: {}; name another one", folder.string(), reason());
}

FolderLock::FolderLock(const fs::path& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(std::exchange(fd_, -1));
  fail("{}: another process is at work in this folder; wait for it, or name another folder", folder.string());
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

void FolderLock::require_in_place(const fs::path& folder) const {
  struct stat held {
  }, named{};
  if (fd_ < 0 || ::fstat(fd_, &held) != 0) return;
  const bool there = ::stat(folder.c_str(), &named) == 0;
  if (!there || held.st_dev != named.st_dev || held.st_ino != named.st_ino)
    fail_work("{}: the folder was moved or removed while a run worked in it; what the run wrote is where the folder is",
              folder.string());
}

fs::path parent_folder(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // does not wait on a pipe
  const struct stat info = open_info(file, path);
  require_regular(info, path);
  if (info.st_size == 0) return;  // nothing to map
  void* at = ::mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (at == MAP_FAILED) fail("cannot map {}: {}", path.string(), reason());
  data_ = static_cast<const std::byte*>(at);
  size_ = size_t(info.st_size);
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
