#include "base/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "support/temp_dir.h"

namespace isobath {
namespace {

using testing::TempDir;

ChildProcess shell(const TempDir& dir, const std::string& script) { return {"/bin/sh", {"-c", script}, dir / "log"}; }

TEST(ChildProcess, tells_how_it_ended_and_what_it_said) {
  const TempDir dir;
  ChildProcess child = shell(dir, "echo out; echo error >&2; cat; exit 3");
  const ProcessEnd end = child.wait();
  EXPECT_EQ(end.code, 3);
  EXPECT_EQ(end.signal, 0);
  EXPECT_GT(end.most_bytes, 1 << 16);
  EXPECT_EQ(read_file(dir / "log"), "out\nerror\n");
  EXPECT_EQ(child.poll()->code, 3) << "it can be asked again";
  shell(dir, "echo more").wait();
  EXPECT_EQ(read_file(dir / "log"), "out\nerror\nmore\n");
  EXPECT_EQ(ChildProcess("/no/such/program", {}, dir / "log").wait().code, 127);
  EXPECT_THROW(ChildProcess("/bin/sh", {}, dir / "no/such/log"), Error);
}

TEST(ChildProcess, stops_when_asked) {
  const TempDir dir;
  ChildProcess child = shell(dir, "exec sleep 100");
  EXPECT_FALSE(child.poll());
  child.ask_to_stop();
  EXPECT_EQ(child.wait().signal, SIGTERM);
}

TEST(ChildProcess, goes_when_its_object_goes) {
  const TempDir dir;
  pid_t id;
  {
    ChildProcess child = shell(dir, "exec sleep 100");
    ChildProcess moved = std::move(child);
    id = moved.id();
    EXPECT_EQ(::kill(id, 0), 0);
  }
  EXPECT_EQ(::kill(id, 0), -1);
}

// As when a sweep is killed: none of its runs may go on unseen.
TEST(ChildProcess, goes_when_its_parent_is_killed) {
  const TempDir dir;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ChildProcess child = shell(dir, "exec sleep 100");
    const pid_t id = child.id();
    if (::write(ends[1], &id, sizeof id) != sizeof id) ::_exit(1);
    for (;;) ::pause();
  }
  pid_t id = 0;
  ASSERT_EQ(::read(ends[0], &id, sizeof id), ssize_t(sizeof id));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  const auto runs = [&] {  // a process that nobody waits for may stay as a zombie
    std::error_code none;
    if (!fs::exists(fmt::format("/proc/{}", id), none)) return false;
    const std::string line = read_file(fmt::format("/proc/{}/stat", id));
    return line[line.rfind(')') + 2] != 'Z';
  };
  while (runs()) ::usleep(1000);  // the test's time limit is the clock
}

}  // namespace
}  // namespace isobath
