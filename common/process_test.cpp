#include "common/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <thread>

namespace stagecoach {
namespace {

TEST_CASE("signals and interrupts end a wait") {
  ShutdownSignals signals;
  std::thread interrupter([&] { signals.Interrupt(); });
  CHECK(signals.Wait() == 0);
  interrupter.join();
  kill(getpid(), SIGTERM);
  CHECK(signals.Wait() == SIGTERM);
}

// Sends two signals to a child and returns its exit code. `ends`: the child calls SecondEnds().
int ExitAfterTwo(int first, int second, bool ends) {
  const pid_t child = fork();
  if (child == 0) {
    ShutdownSignals signals;
    if (ends) signals.SecondEnds();
    kill(getpid(), first);
    if (signals.Wait() != first) std::_Exit(1);
    kill(getpid(), second);
    // Do not wait for the second signal, as if the program were stuck.
    if (ends) {
      while (true) pause();
    }
    std::_Exit(signals.Wait() == second ? 42 : 2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a second signal ends a process in which no thread waits for signals") {
  CHECK(ExitAfterTwo(SIGTERM, SIGTERM, true) == kExitBySignal + SIGTERM);
  CHECK(ExitAfterTwo(SIGTERM, SIGINT, true) == kExitBySignal + SIGINT);
  CHECK(ExitAfterTwo(SIGINT, SIGTERM, false) == 42);
}

TEST_CASE("a process whose shutdown hangs still exits and says why") {
  const pid_t child = fork();
  if (child == 0) {
    EndWithin(std::chrono::seconds(0), "a thread is held up");
    while (true) pause();
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
}

// Returns the exit code of a child that calls ExitWithParent(parent).
int ExitOfChildOf(pid_t parent) {
  const pid_t child = fork();
  if (child == 0) {
    ExitWithParent(parent);
    std::_Exit(42);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a child exits when its parent dies, whatever the parent's pid") {
  CHECK(ExitOfChildOf(getpid()) == 42);
  CHECK(ExitOfChildOf(getppid()) == 1);  // the real parent is another process
}

}  // namespace
}  // namespace stagecoach
