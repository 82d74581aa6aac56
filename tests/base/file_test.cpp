#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "support/full_disk.h"
#include "support/temp_dir.h"

namespace isobath {
namespace {

using testing::FileSizeLimit;
using testing::TempDir;

template <class F>
void expect_error(F f, Fault fault, const std::string& path, const std::string& reason) {
  try {
    f();
    ADD_FAILURE() << "no error for " << path;
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), fault) << e.what();
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what() << "\n want: " << reason;
  }
}

int64_t entries(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

TEST(ReadFile, gives_all_bytes) {
  const TempDir dir;
  std::string bytes(200001, 'x');
  bytes[7] = '\0', bytes[9] = '\r';
  EXPECT_EQ(read_file(dir.write("a", bytes)), bytes);
  EXPECT_EQ(read_file(dir.write("empty", "")), "");
  EXPECT_NE(read_file("/proc/self/status").find("Pid:"), std::string::npos);  // says it has size 0
}

TEST(ReadFile, names_what_it_cannot_read) {
  const TempDir dir;
  const std::string missing = dir / "missing", below = dir.write("file", "x") / "below";
  expect_error([&] { read_file(missing); }, Fault::kInput, missing, "No such file or directory");
  expect_error([&] { read_file(dir.path()); }, Fault::kInput, dir.path(), "it is a folder, expected a file");
  expect_error([&] { read_file(below); }, Fault::kInput, below, "Not a directory");
}

TEST(ReadFile, reads_no_more_than_was_asked) {
  const TempDir dir;
  const std::string file = dir.write("a", std::string(3 << 20, 'x')), pipe = dir / "pipe";
  EXPECT_EQ(read_file(file, 3 << 20).size(), 3u << 20);
  expect_error([&] { read_file(file, 2 << 20); }, Fault::kInput, file, "longer than 2 MiB");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& endless : {std::string("/dev/zero"), std::string("/dev/random"), pipe}) {
    expect_error([&] { read_file(endless); }, Fault::kInput, endless, "a device or pipe");
    if (endless != pipe)
      expect_error([&] { read_file_or_pipe(endless, 1 << 20); }, Fault::kInput, endless, "a device or pipe");
  }
}

TEST(ReadFile, reads_pipes_where_they_are_welcome) {
  const TempDir dir;
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto filled = [&](size_t bytes, int64_t most) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGPIPE, SIG_IGN);
      const int fd = ::open(pipe.c_str(), O_WRONLY);
      const std::string text(bytes, 'x');
      [[maybe_unused]] const ssize_t put = ::write(fd, text.data(), text.size());
      ::_exit(0);
    }
    std::string read, error;
    try {
      read = read_file_or_pipe(pipe, most);
    } catch (const Error& e) {
      error = e.what();
    }
    ::waitpid(child, nullptr, 0);
    return std::pair(read.size(), error);
  };
  EXPECT_EQ(filled(200'000, 1 << 20), std::pair(size_t(200'000), std::string()));
  EXPECT_NE(filled(2'000'000, 1 << 20).second.find("longer than 1 MiB"), std::string::npos);
  EXPECT_EQ(read_file_or_pipe(dir.write("a", "bytes"), 1 << 20), "bytes");
}

TEST(MappedFile, maps_and_moves) {
  const TempDir dir;
  MappedFile file(dir.write("a", "bytes"));
  EXPECT_EQ(file.path(), dir / "a");
  const std::byte* at = file.bytes().data();
  MappedFile moved(std::move(file)), assigned(dir.write("b", "other"));
  EXPECT_EQ(moved.bytes().data(), at);
  assigned = std::move(moved);
  ASSERT_EQ(assigned.bytes().size(), 5u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(assigned.bytes().data()), 5), "bytes");
  EXPECT_TRUE(MappedFile(dir.write("empty", "")).bytes().empty());
  EXPECT_TRUE(MappedFile().bytes().empty());
}

TEST(MappedFile, names_what_it_cannot_map) {
  const TempDir dir;
  const std::string missing = dir / "missing", pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error([&] { MappedFile file(missing); }, Fault::kInput, missing, "No such file or directory");
  expect_error([&] { MappedFile file(dir.path()); }, Fault::kInput, dir.path(), "it is a folder");
  expect_error([&] { MappedFile file(pipe); }, Fault::kInput, pipe, "a device or pipe");
}

TEST(MappedFile, keeps_the_old_bytes_when_the_file_is_replaced) {
  const TempDir dir;
  const MappedFile file(dir.write("a", std::string(10000, 'o')));
  replace_file(dir / "a", "n");
  for (const std::byte b : file.bytes()) ASSERT_EQ(b, std::byte('o'));
  EXPECT_EQ(read_file(dir / "a"), "n");
}

TEST(FileWriter, appears_on_commit_only) {
  const TempDir dir;
  dir.write("a", "old");
  {
    FileWriter out(dir / "a");
    out.write("new");
    EXPECT_EQ(read_file(dir / "a"), "old");
    out.write(" bytes");
    out.commit();
    EXPECT_EQ(read_file(dir / "a"), "new bytes");
  }
  { FileWriter(dir / "a").write("never committed"); }
  EXPECT_EQ(read_file(dir / "a"), "new bytes");
  EXPECT_EQ(entries(dir.path()), 1);
}

TEST(FileWriter, takes_the_place_of_a_part_left_behind) {
  const TempDir dir;
  dir.write("a.part", "a long part of a killed writer");
  dir.write("target", "untouched");
  replace_file(dir / "a", "new");
  EXPECT_EQ(read_file(dir / "a"), "new");
  fs::create_symlink(dir / "target", dir / "a.part");
  replace_file(dir / "a", "newer");
  EXPECT_EQ(read_file(dir / "a"), "newer");
  EXPECT_EQ(read_file(dir / "target"), "untouched");
  EXPECT_EQ(entries(dir.path()), 2);
}

TEST(FileWriter, a_bare_name_lies_in_the_current_folder) {
  const TempDir dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  replace_file("bare", "x");
  fs::current_path(before);
  EXPECT_EQ(read_file(dir / "bare"), "x");
  EXPECT_EQ(parent_folder("bare"), ".");
  EXPECT_EQ(parent_folder("a/b"), "a");
}

TEST(FileWriter, a_full_disk_leaves_the_old_file_and_no_part) {
  const TempDir dir;
  const std::string path = dir.write("a", "old");
  {
    const FileSizeLimit limit(1 << 16);
    expect_error([&] { replace_file(path, std::string(1 << 20, 'x')); }, Fault::kWork, path, "File too large");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(entries(dir.path()), 1);
}

TEST(FileWriter, refuses_places_where_no_file_can_be) {
  const TempDir dir;
  dir.write("file", "x");
  fs::create_directory(dir / "folder");
  const std::string below = dir / "file/below", missing = dir / "none/a", folder = dir / "folder";
  const auto write = [](const std::string& path) { replace_file(path, "bytes"); };
  expect_error([&] { write(below); }, Fault::kWork, below, "Not a directory");
  expect_error([&] { write(missing); }, Fault::kWork, missing, "No such file or directory");
  expect_error([&] { write(folder); }, Fault::kWork, folder, "it is a folder");
  expect_error([&] { write("/dev/null"); }, Fault::kWork, "/dev/null", "a device or pipe");
  expect_error([&] { sync_folder(missing); }, Fault::kWork, missing, "No such file");
  expect_error([&] { sync_file(missing); }, Fault::kWork, missing, "No such file");
  EXPECT_EQ(entries(dir.path()), 2);
}

TEST(FileWriter, a_failed_rename_leaves_no_part) {
  const TempDir dir;
  const std::string path = dir / "a";
  FileWriter out(path);
  out.write("bytes");
  fs::create_directories(dir / "a/in the way");
  expect_error([&] { out.commit(); }, Fault::kWork, path, "directory");
  EXPECT_EQ(entries(dir.path()), 1);
}

TEST(ReplaceFile, readers_see_one_or_the_other) {
  const TempDir dir;
  const std::string texts[] = {std::string(100000, 'a'), std::string(50000, 'b')};
  replace_file(dir / "x", texts[0]);
  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 1;; i++) replace_file(dir / "x", texts[i % 2]);
  }
  for (int i = 0; i < 300; i++) {
    const std::string got = read_file(dir / "x");
    EXPECT_TRUE(got == texts[0] || got == texts[1]) << i << ": " << got.size() << " bytes";
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(HashBytes, is_fnv_1a) {  // vectors of the algorithm's own page
  EXPECT_EQ(hash_bytes(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_bytes("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_bytes("foobar"), 0x85944171f73967e8u);
}

TEST(RequireWritable, names_the_folder) {
  const TempDir dir;
  require_writable(dir.path());
  expect_error([&] { require_writable(dir / "none"); }, Fault::kInput, dir / "none", "no such folder");
  const fs::path file = dir.write("file", "x");
  expect_error([&] { require_writable(file); }, Fault::kInput, file, "no such folder");
}

TEST(FolderLock, keeps_others_out_until_it_is_gone) {
  const TempDir dir;
  const auto refused = [&] {
    expect_error([&] { FolderLock lock(dir.path()); }, Fault::kInput, dir.path(), "another process");
  };
  {
    FolderLock lock(dir.path());
    refused();
    const FolderLock moved(std::move(lock));
    refused();
  }
  const FolderLock again(dir.path());
  refused();
}

TEST(FolderLock, knows_that_its_folder_was_moved) {
  const TempDir dir;
  fs::create_directory(dir / "run");
  const FolderLock lock(dir / "run");
  lock.require_in_place(dir / "run");
  fs::rename(dir / "run", dir / "moved");
  const auto moved = [&] {
    expect_error([&] { lock.require_in_place(dir / "run"); }, Fault::kWork, dir / "run", "was moved or removed");
  };
  moved();
  fs::create_directory(dir / "run");  // another one
  moved();
  lock.require_in_place(dir / "moved");
}

TEST(FolderLock, of_a_killed_process_is_free) {
  const TempDir dir;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(dir.path());
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    ::pause();
  }
  char told;
  ASSERT_EQ(::read(ready[0], &told, 1), 1);
  expect_error([&] { FolderLock lock(dir.path()); }, Fault::kInput, dir.path(), "another process");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const FolderLock lock(dir.path());
}

}  // namespace
}  // namespace isobath
