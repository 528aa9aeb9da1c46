#include "common/process.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
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

}  // namespace
}  // namespace stagecoach
