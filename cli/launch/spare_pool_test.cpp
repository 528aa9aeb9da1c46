#include "cli/launch/spare_pool.h"

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <future>
#include <string>

namespace stagecoach::launch {
namespace {

// Says at which address it was told to listen, and then waits to be killed.
constexpr char kSpare[] =
    "address=$(dd bs=4096 count=1 <&3 2>/dev/null); [ -n \"$address\" ] || exit 7;"
    "echo listening $address; echo told >&2; exec sleep 1000";

// What is known of a spare that was taken.
struct Taken {
  std::promise<std::string> line;
  std::promise<ChildExit> exit;
  ChildCallbacks Callbacks() {
    return {.on_stdout = [this](std::string_view text) { line.set_value(std::string(text)); },
            .on_stderr = [](std::string_view) {},
            .on_exit = [this](const ChildExit& end) { exit.set_value(end); },
            .on_stopped = [](bool) {}};
  }
};

TEST_CASE("A spare takes the place that it is given, and its events go there") {
  ChildLog log("spare", /*echo=*/false);
  SparePool pool({.program = "/bin/sh", .args = {"-c", kSpare}}, 2, &log);
  Taken taken;
  CHECK_FALSE(pool.Take("127.0.0.1:1", taken.Callbacks()).has_value());
  REQUIRE(pool.Fill().ok());
  CHECK(pool.n_waiting() == 2);
  const auto spare = pool.Take("127.0.0.1:1", taken.Callbacks());
  REQUIRE(spare.has_value());
  CHECK(taken.line.get_future().get() == "listening 127.0.0.1:1");
  CHECK(pool.n_waiting() == 1);
  REQUIRE(pool.Fill().ok());
  CHECK(pool.n_waiting() == 2);
  spare->process->Signal(SIGKILL);
  CHECK(taken.exit.get_future().get().signal == SIGKILL);
}

TEST_CASE("A spare that has died takes no place") {
  ChildLog log("spare", /*echo=*/false);
  SparePool pool({.program = "/bin/false"}, 1, &log);
  REQUIRE(pool.Fill().ok());
  // Its end of the socket is closed, or its death is noticed at the place that it took.
  Taken taken;
  if (const auto spare = pool.Take("127.0.0.1:1", taken.Callbacks())) {
    CHECK(taken.exit.get_future().get().code == 1);
  }
}

}  // namespace
}  // namespace stagecoach::launch
