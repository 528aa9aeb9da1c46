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

// What a child exits with that is told that `parent` is its parent.
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

TEST_CASE("a child lives as long as its parent, whatever the number of that") {
  CHECK(ExitOfChildOf(getpid()) == 42);
  CHECK(ExitOfChildOf(getppid()) == 1);  // somebody else took it over
}

}  // namespace
}  // namespace stagecoach
