#include "router/dispatch/stage_stats.h"

#include <catch2/catch_test_macros.hpp>
#include <semaphore>

#include "router/dispatch/testing/fake_stage.h"

namespace stagecoach::router {
namespace {

// Asks until `last` holds for the last stage.
std::vector<std::optional<v1::StatsResponse>> AskUntil(
    const StageStats& stats,
    const std::function<bool(const std::optional<v1::StatsResponse>&)>& last) {
  while (true) {
    auto answer = stats();
    if (last(answer.back())) return answer;
  }
}

TEST_CASE("stages are asked in parallel, and a lost stage has no stats after a while") {
  FakeStage first, second;
  const StageStats stats = MakeStageStats({first.address(), second.address()});
  const StageLoads loads = MakeStageLoads(stats);
  auto answer = AskUntil(stats, [](const auto& last) { return last.has_value(); });
  REQUIRE(answer.size() == 2);
  CHECK(answer[1]->compute_ms() == 5);
  CHECK(loads()[1] == 5.0);
  second.Die();
  answer = AskUntil(stats, [](const auto& last) { return !last.has_value(); });
  CHECK(answer.size() == 2);
}

TEST_CASE("a slow stage is shown with its answer to the previous call") {
  std::counting_semaphore<> answers(0);
  FakeStage stage({.on_stats = [&answers] { answers.acquire(); }});
  const StageStats stats = MakeStageStats({stage.address()}, std::chrono::milliseconds(0));
  CHECK_FALSE(stats()[0].has_value());
  answers.release();
  AskUntil(stats, [](const auto& last) { return last.has_value(); });
  CHECK_FALSE(stats()[0].has_value());  // no new answer since
  answers.release(10);
}

}  // namespace
}  // namespace stagecoach::router
