// Files: whole or not at all.
//
// Reading throws Error{kInput}, writing Error{kWork}; both name the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace isobath {

namespace fs = std::filesystem;

// The most that is read of a file that people write (options, config.json, state.json), of a tokenizer's, of a prompt.
inline constexpr int64_t kConfigBytes = 16 << 20, kTokenizerBytes = 256 << 20, kPromptBytes = 64 << 20;

// The whole file. Throws Error naming the path when it is missing, unreadable, no regular file (a folder, a device or a
// pipe, which may have no end), or longer than `most` bytes.
std::string read_file(const fs::path& path, int64_t most = INT64_MAX);

// The same, but a pipe is read to its end too: `<(command)` as a file of the shell.
std::string read_file_or_pipe(const fs::path& path, int64_t most);
// What is left of an open stream of any kind; `name` is for messages.
std::string read_stream(int fd, const std::string& name, int64_t most);

// Writes beside, flushes to disk, renames over: readers see the old file or the new one, never a part.
// A failure (full disk, read-only folder) removes the part, leaves the old file and throws Error{kWork}.
void replace_file(const fs::path& path, std::string_view bytes);

// A file being written piece by piece, as PATH.part until commit(). Destroyed without commit: removed.
// One writer per path at a time. Refuses a folder, a device or a pipe, which the rename would replace.
class FileWriter {
 public:
  explicit FileWriter(const fs::path& path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();
  void write(const void* bytes, size_t count);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  void commit();  // fsync, rename, fsync of the folder

 private:
  fs::path path_, part_;
  int fd_ = -1;
};

// Flush a file's bytes, or a folder's entries (so that a rename in it survives a power cut), to disk.
// Throw Error{kWork} when the disk fails; file systems that cannot flush folders are taken as they are.
void sync_file(const fs::path& file);
void sync_folder(const fs::path& folder);

// Throws Error{kInput} unless the folder is there and files can be made in it: asked before long work, not after it.
void require_writable(const fs::path& folder);

// A folder that one process at a time works in. Held until destroyed or until the process ends, however it ends; where
// the file system knows no locks, nobody is kept out.
class FolderLock {
 public:
  FolderLock() = default;
  explicit FolderLock(const fs::path& folder);  // Throws Error{kInput} while another holds it.
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();
  // Throws Error{kWork} unless `folder` is still the folder that was locked: it may have been moved, or removed.
  void require_in_place(const fs::path& folder) const;

 private:
  int fd_ = -1;
};

// The folder that holds path's entry: "." for a bare name.
fs::path parent_folder(const fs::path& path);

// A read-only regular file in memory, mapped. An empty file is an empty span. Throws Error as read_file does.
// Files that appear whole are never shortened under the map. Where another program shortens one, the next look at the
// missing part is a SIGBUS; the program tells of it and ends (cli/terminal.h).
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// FNV-1a, 64 bits: a name for content (tokenizer hashes in shard headers), not a defence against forgery.
uint64_t hash_bytes(std::string_view bytes);

}  // namespace isobath
