// A writer killed at any moment leaves whole checkpoints only, and loses none that it had reported.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <functional>
#include <random>

#include "checkpoint_support.h"
#include "support/temp_dir.h"

namespace isobath {
namespace {

using testing::check_whole;
using testing::save;
using testing::TempDir;

// No hidden name and no stray file once a new run has started.
void check_clean_after_start(const fs::path& root) {
  remove_unfinished(root);
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name[0] != '.' && !name.ends_with(".part")) << entry.path();
  }
  check_whole(root);
}

TEST(Kill, at_random_moments) {
  const TempDir dir;
  const fs::path root = dir / "run";
  void* shared = ::mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* reported = static_cast<volatile int64_t*>(shared);
  *reported = -1;
  std::mt19937 random(7);
  for (int round = 0; round < 40; round++) {
    const pid_t child = ::fork();
    if (child == 0) {
      remove_unfinished(root);
      for (int64_t step = *reported + 1;; step++) {
        save(root, step, 2);
        *reported = step;
      }
    }
    ::usleep(random() % 12000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    check_whole(root);
    const auto latest = latest_checkpoint(root);
    ASSERT_GE(latest ? latest->step : -1, *reported);
  }
  EXPECT_GT(*reported, 0);
  check_clean_after_start(root);
  ::munmap(shared, sizeof(int64_t));
}

// Runs f in a child that is killed before its n-th system call.
enum class Outcome { kKilled, kEnded, kNotAllowed };  // not allowed: one process may not watch another

Outcome killed_before_call(int64_t n, const std::function<void()>& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    f();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  for (int64_t stop = 0; WIFSTOPPED(status); stop++) {
    if (stop == 2 * n) {  // it stops on the way into a call and on the way out
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return Outcome::kKilled;
    }
    if (::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) break;
    ::waitpid(child, &status, 0);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Outcome::kEnded;
  return Outcome::kNotAllowed;
}

// From here on this process lives on a file system on which two folders cannot change places.
bool refuse_exchange() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
                           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[4])),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RENAME_EXCHANGE, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Here a kill can leave the step without its name for a moment, but never without its folder.
TEST(Kill, before_every_system_call_where_folders_cannot_change_places) {
  int64_t calls = 0;
  for (Outcome outcome = Outcome::kKilled; outcome == Outcome::kKilled; calls++) {
    const TempDir dir;
    save(dir.path(), 100, 1);
    outcome = killed_before_call(calls, [&] {
      if (!refuse_exchange()) ::_exit(77);
      save(dir.path(), 100, 1);
    });
    if (outcome == Outcome::kNotAllowed) GTEST_SKIP() << "needs ptrace and seccomp";
    SCOPED_TRACE("before call " + std::to_string(calls));
    check_clean_after_start(dir.path());
    ASSERT_EQ(list_checkpoints(dir.path()).size(), 1u);
  }
  EXPECT_GT(calls, 40);
}

// The older checkpoint is there until the newer one is, at every step of the way.
void kill_before_every_call(int64_t old_step, int64_t new_step) {
  int64_t calls = 0;
  for (Outcome outcome = Outcome::kKilled; outcome == Outcome::kKilled; calls++) {
    const TempDir dir;
    save(dir.path(), old_step, 1);
    outcome = killed_before_call(calls, [&] { save(dir.path(), new_step, 1); });
    if (outcome == Outcome::kNotAllowed) GTEST_SKIP() << "needs ptrace";
    SCOPED_TRACE("before call " + std::to_string(calls));
    check_whole(dir.path());
    const auto latest = latest_checkpoint(dir.path());
    ASSERT_TRUE(latest);
    ASSERT_TRUE(latest->step == old_step || latest->step == new_step);
    ASSERT_TRUE(outcome != Outcome::kEnded || latest->step == new_step);
    check_clean_after_start(dir.path());
    save(dir.path(), new_step + 1, 1);
    check_whole(dir.path());
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(calls, 40);
}

TEST(Kill, before_every_system_call_of_a_new_step) { kill_before_every_call(100, 200); }
TEST(Kill, before_every_system_call_of_the_same_step) { kill_before_every_call(100, 100); }

}  // namespace
}  // namespace isobath
