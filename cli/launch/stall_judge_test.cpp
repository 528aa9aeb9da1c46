#include "cli/launch/stall_judge.h"

#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <future>
#include <memory>
#include <string_view>
#include <thread>

#include "cli/launch/child_process.h"

namespace stagecoach::launch {
namespace {

using std::chrono::milliseconds;

TEST_CASE("A process that is stopped does not want to run, one that computes does") {
  std::promise<void> up;
  const auto child =
      *ChildProcess::Spawn({.program = "/bin/sh", .args = {"-c", "echo up; while :; do :; done"}},
                           {.on_stdout = [&up](std::string_view) { up.set_value(); },
                            .on_stderr = [](std::string_view) {},
                            .on_exit = [](const ChildExit&) {}});
  up.get_future().get();
  CHECK(HasThreadIn(kWantsToRun, child->pid()));
  child->Signal(SIGSTOP);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, child->pid(), &info, WSTOPPED | WNOWAIT) == 0);
  CHECK_FALSE(HasThreadIn(kWantsToRun, child->pid()));
  CHECK(HasThreadIn(kIsStopped, child->pid()));
  child->Signal(SIGCONT);
  while (!HasThreadIn(kWantsToRun, child->pid())) std::this_thread::yield();
}

TEST_CASE("A process that does not exist is not said to rest") {
  CHECK(HasThreadIn(kWantsToRun, -1));
}

TEST_CASE("Stalled stages are killed when the pipeline has rested in three looks in a row") {
  StallJudge judge;
  StallJudge::Time now{};
  CHECK(judge.next_look() == StallJudge::Time::max());
  judge.SetStalled({1, 2}, now);
  CHECK(judge.next_look() == now);
  for (const bool rests : {true, true, false, true, true}) {
    CHECK(judge.Look(rests, now).empty());
    CHECK(judge.next_look() == now + StallJudge::kInterval);
    now += StallJudge::kInterval;
  }
  CHECK(judge.Look(true, now) == std::vector<size_t>{1, 2});
  CHECK(judge.next_look() == StallJudge::Time::max());
}

TEST_CASE("A stage that goes on is forgotten, and another stall is judged anew") {
  StallJudge judge;
  StallJudge::Time now{};
  judge.SetStalled({0}, now);
  CHECK(judge.Look(true, now).empty());
  CHECK(judge.Look(true, now).empty());
  judge.SetStalled({}, now);
  CHECK(judge.next_look() == StallJudge::Time::max());
  judge.SetStalled({3}, now + milliseconds(1));
  CHECK(judge.next_look() == now + milliseconds(1));
  CHECK(judge.Look(true, now).empty());
  judge.SetStalled({3, 4}, now);  // another one; the looks count for both
  CHECK(judge.Look(true, now).empty());
  CHECK(judge.Look(true, now) == std::vector<size_t>{3, 4});
}

}  // namespace
}  // namespace stagecoach::launch
