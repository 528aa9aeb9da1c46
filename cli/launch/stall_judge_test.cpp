#include "cli/launch/stall_judge.h"

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
  // Not waitid: ChildProcess's own thread may take the report of the stop first.
  while (!HasThreadIn(kIsStopped, child->pid())) std::this_thread::yield();
  CHECK_FALSE(HasThreadIn(kWantsToRun, child->pid()));
  child->Signal(SIGCONT);
  while (!HasThreadIn(kWantsToRun, child->pid())) std::this_thread::yield();
}

TEST_CASE("A process that does not exist is not said to rest") {
  CHECK(HasThreadIn(kWantsToRun, -1));
}

bool Always(size_t) { return true; }
bool Never(size_t) { return false; }

std::vector<size_t> Look(StallJudge& judge, StallJudge::Question rests, StallJudge::Time now) {
  return judge.Look(rests, Never, now);
}

TEST_CASE("Stalled stages are killed when there was rest in three looks in a row") {
  StallJudge judge;
  StallJudge::Time now{};
  CHECK(judge.next_look() == StallJudge::Time::max());
  judge.SetStalled({1, 2}, now);
  CHECK(judge.next_look() == now);
  for (const bool rests : {true, true, false, true, true}) {
    CHECK(Look(judge, rests ? Always : Never, now).empty());
    CHECK(judge.next_look() == now + StallJudge::kInterval);
    now += StallJudge::kInterval;
  }
  CHECK(Look(judge, Always, now) == std::vector<size_t>{1, 2});
  CHECK(judge.next_look() == StallJudge::Time::max());
}

TEST_CASE("Each stalled stage is judged by itself") {
  StallJudge judge;
  const StallJudge::Time now{};
  judge.SetStalled({1}, now);
  CHECK(Look(judge, Always, now).empty());
  judge.SetStalled({1, 2}, now);
  CHECK(Look(judge, Always, now).empty());
  CHECK(Look(judge, Always, now) == std::vector<size_t>{1});
  CHECK(judge.next_look() == now + StallJudge::kInterval);
  CHECK(Look(judge, [](size_t stage) { return stage == 1; }, now).empty());
}

TEST_CASE("A stage that was killed often is killed after ten seconds of rest") {
  StallJudge judge;
  StallJudge::Time now{};
  judge.SetStalled({0, 1}, now);
  const auto is_doubted = [](size_t stage) { return stage == 1; };
  CHECK(judge.Look(Always, is_doubted, now).empty());
  CHECK(judge.Look(Always, is_doubted, now).empty());
  CHECK(judge.Look(Always, is_doubted, now) == std::vector<size_t>{0});
  while (judge.Look(Always, is_doubted, now).empty()) now += StallJudge::kInterval;
  CHECK(now - StallJudge::Time{} <= std::chrono::seconds(10));
  CHECK(now - StallJudge::Time{} > std::chrono::seconds(9));
  CHECK(judge.next_look() == StallJudge::Time::max());
}

TEST_CASE("A stage that goes on or gets another process is forgotten") {
  StallJudge judge;
  const StallJudge::Time now{};
  judge.SetStalled({0}, now);
  CHECK(Look(judge, Always, now).empty());
  CHECK(Look(judge, Always, now).empty());
  judge.SetStalled({}, now);
  CHECK(judge.next_look() == StallJudge::Time::max());
  judge.SetStalled({0, 3}, now + milliseconds(1));
  CHECK(judge.next_look() == now + milliseconds(1));
  CHECK(Look(judge, Always, now).empty());
  judge.Forget(0);
  CHECK(Look(judge, Always, now).empty());
  CHECK(Look(judge, Always, now) == std::vector<size_t>{3});
  judge.SetStalled({3}, now);
  judge.Forget(3);
  CHECK(judge.next_look() == StallJudge::Time::max());
}

}  // namespace
}  // namespace stagecoach::launch
