#include "cli/launch/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <string>

namespace stagecoach::launch {
namespace {

// Runs `script` in a shell and collects its output.
class Shell {
 public:
  explicit Shell(const std::string& script) {
    child_ = *ChildProcess::Spawn(
        {.program = "/bin/sh", .args = {"-c", script}},
        {.on_stdout =
             [this](std::string_view line) {
               out_ += std::string(line) + "\n";
               if (line == "up") up_.set_value();
             },
         .on_stderr = [this](std::string_view line) { err_ += std::string(line) + "\n"; },
         .on_exit = [this](const ChildExit& exit) { exit_.set_value(exit); }});
  }

  ChildProcess& child() { return *child_; }
  void AwaitUp() { up_.get_future().get(); }
  ChildExit AwaitExit() { return exit_.get_future().get(); }
  void Destroy() { child_.reset(); }
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  std::string out_, err_;
  std::promise<void> up_;
  std::promise<ChildExit> exit_;
  std::unique_ptr<ChildProcess> child_;
};

// The process is neither running nor waiting to be reaped.
bool IsGone(pid_t pid) { return waitpid(pid, nullptr, WNOHANG) == -1 && kill(pid, 0) == -1; }

TEST_CASE("The error names a missing program") {
  const auto child = ChildProcess::Spawn({.program = "/no/such/program", .args = {}}, {});
  REQUIRE(child.status().code() == absl::StatusCode::kNotFound);
  CHECK(child.status().message() == "cannot start /no/such/program: No such file or directory");
}

TEST_CASE("A file that is not executable is an error") {
  CHECK(ChildProcess::Spawn({.program = "/dev/null", .args = {}}, {}).status().code() ==
        absl::StatusCode::kInternal);
}

TEST_CASE("Variables of the child take the place of ours, and the others stay") {
  setenv("SC_TEST_REPLACED", "ours", 1);
  setenv("SC_TEST_KEPT", "ours", 1);
  std::promise<std::string> said;
  const auto child = ChildProcess::Spawn(
      {.program = "/bin/sh",
       .args = {"-c", "echo $SC_TEST_REPLACED $SC_TEST_KEPT"},
       .environment = {"SC_TEST_REPLACED=its own"}},
      {.on_stdout = [&said](std::string_view line) { said.set_value(std::string(line)); },
       .on_stderr = [](std::string_view) {},
       .on_exit = [](const ChildExit&) {}});
  REQUIRE(child.ok());
  CHECK(said.get_future().get() == "its own ours");
  unsetenv("SC_TEST_REPLACED");
  unsetenv("SC_TEST_KEPT");
}

TEST_CASE("The output of both streams arrives before the exit code") {
  Shell shell("echo out; echo err >&2; printf unended; exit 7");
  const ChildExit exit = shell.AwaitExit();
  CHECK(exit.code == 7);
  CHECK(exit.signal == 0);
  CHECK(exit.Describe() == "exited with code 7");
  CHECK(shell.out() == "out\nunended\n");
  CHECK(shell.err() == "err\n");
  CHECK(IsGone(shell.child().pid()));
}

TEST_CASE("A death by signal is reported differently from an exit") {
  Shell shell("kill -SEGV $$");
  const ChildExit exit = shell.AwaitExit();
  CHECK(exit.signal == SIGSEGV);
  CHECK_FALSE(exit.Clean());
  CHECK(exit.Describe() == "was killed by signal 11 (Segmentation fault)");
}

TEST_CASE("A child receives signals, but not after it has ended") {
  // This test does not use a shell's trap: right after fork, the shell's child still has the trap
  // handler and would catch the signal.
  Shell shell(
      "exec python3 -c 'import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {15});"
      "print(\"up\", flush=True); signal.sigwait({15}); raise SystemExit(3)'");
  shell.AwaitUp();
  shell.child().Signal(SIGTERM);
  CHECK(shell.AwaitExit().code == 3);
  shell.child().Signal(SIGTERM);
}

TEST_CASE("A child does not inherit blocked or ignored signals") {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, nullptr);
  const auto previous = signal(SIGPIPE, SIG_IGN);
  Shell shell("echo up; exec sleep 1000");
  pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
  shell.AwaitUp();
  shell.child().Signal(SIGPIPE);
  CHECK(shell.AwaitExit().signal == SIGPIPE);
  signal(SIGPIPE, previous);
}

TEST_CASE("A child has its own process group, no input and none of our file descriptors") {
  const int leak = open("/dev/null", O_RDONLY);
  Shell shell("cat; echo up; exec sleep 1000");
  shell.AwaitUp();
  CHECK(getpgid(shell.child().pid()) == shell.child().pid());
  shell.Destroy();
  Shell fds("ls /proc/self/fd | tr '\\n' ' '");
  fds.AwaitExit();
  close(leak);
  CHECK(fds.out() == "0 1 2 3 \n");  // 3 is the descriptor with which ls reads the folder
}

TEST_CASE("A child inherits the descriptor of its spec") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  std::promise<void> ended;
  const auto child = ChildProcess::Spawn({.program = "/bin/sh",
                                          .args = {"-c", "echo here >&3; ls /proc/self/fd >&3"},
                                          .inherited_fd = ends[1]},
                                         {.on_stdout = [](std::string_view) {},
                                          .on_stderr = [](std::string_view) {},
                                          .on_exit = [&](const ChildExit&) { ended.set_value(); }});
  close(ends[1]);
  REQUIRE(child.ok());
  ended.get_future().get();
  char text[100] = "";
  CHECK(read(ends[0], text, sizeof(text) - 1) > 0);
  CHECK(std::string(text) == "here\n0\n1\n2\n3\n4\n");  // 4: with which ls reads the folder
  close(ends[0]);
}

TEST_CASE("Destruction kills and reaps the child") {
  Shell shell("trap '' TERM INT; echo up; exec sleep 1000");
  shell.AwaitUp();
  const pid_t pid = shell.child().pid();
  shell.Destroy();
  CHECK(IsGone(pid));
  CHECK(shell.AwaitExit().signal == SIGKILL);
}

}  // namespace
}  // namespace stagecoach::launch
