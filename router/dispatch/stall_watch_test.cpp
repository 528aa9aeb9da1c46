#include "router/dispatch/stall_watch.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>

namespace stagecoach::router {
namespace {

using Catch::Matchers::ContainsSubstring;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr StepSize kDecode{.n_rows = 1, .n_pairs = 10, .n_logits = 1};

// A StallWatch and its clock; the stages' largest step took 100 ms.
class Watched {
 public:
  explicit Watched(size_t n_stages, milliseconds largest = milliseconds(100))
      : watch_(Stages(n_stages, largest), {}, now_), said_(n_stages), silent_(n_stages) {}

  void Send(uint64_t step, const StepSize& size = kDecode) { watch_.Sent(step, size, now_); }
  // From now on, the stage repeats this every 100 ms.
  void Say(size_t stage, uint64_t begun, uint64_t done, v1::StepActivity activity,
           uint64_t work = 0) {
    said_[stage].set_begun(begun);
    said_[stage].set_done(done);
    said_[stage].set_activity(activity);
    if (work > 0) said_[stage].set_work(work);
    watch_.Heard(stage, said_[stage], now_);
  }
  // The stage has the metadata of the step, and repeats it.
  void Receive(size_t stage, uint64_t step) {
    said_[stage].set_received(step);
    watch_.Heard(stage, said_[stage], now_);
  }
  void Silence(size_t stage) { silent_[stage] = true; }
  // Sends a step that all stages finish at once.
  void Finish(uint64_t step) {
    Send(step);
    for (size_t i = 0; i < said_.size(); ++i) Say(i, step, step, v1::STEP_ACTIVITY_IDLE);
  }
  // The first change within `most`. Absent: none.
  std::optional<StallWatch::Change> Next(milliseconds most, bool works = false) {
    for (const auto end = now_ + most; now_ < end;) {
      now_ += StallWatch::kTick;
      for (size_t i = 0; i < said_.size(); ++i) {
        if (works) said_[i].set_work(said_[i].work() + 1);
        if (!silent_[i]) watch_.Heard(i, said_[i], now_);
      }
      const auto changes = watch_.Tick(now_);
      if (!changes.empty()) return changes.front();
    }
    return std::nullopt;
  }
  void Sleep(milliseconds time) { now_ += time; }
  absl::Status Verdict() const { return watch_.Verdict(now_); }
  StallWatch& watch() { return watch_; }
  StallWatch::Time now() const { return now_; }

 private:
  static std::vector<StallWatch::Stage> Stages(size_t n, milliseconds largest) {
    std::vector<StallWatch::Stage> stages;
    for (size_t i = 0; i < n; ++i) {
      stages.push_back({"stage " + std::to_string(i),
                        StepCost({.n_rows = 512, .n_pairs = 512, .n_logits = 64}, largest)});
    }
    return stages;
  }

  StallWatch::Time now_{seconds(1000)};
  StallWatch watch_;
  std::vector<v1::StepProgress> said_;
  std::vector<bool> silent_;
};

TEST_CASE("an idle pipeline never stalls") {
  Watched stages(3);
  stages.Finish(1);
  CHECK_FALSE(stages.Next(seconds(3600)));
  CHECK(stages.Verdict().ok());
}

TEST_CASE("a silent stage is detected in about a second, and later ends the pipeline") {
  Watched stages(2);
  stages.Finish(1);
  stages.Silence(1);
  const auto before = stages.now();
  const auto change = stages.Next(seconds(60));
  REQUIRE(change);
  CHECK(change->stage == 1);
  CHECK(change->kind == StallKind::kSilent);
  CHECK_THAT(change->text, ContainsSubstring("stage 1") && ContainsSubstring("stopped"));
  CHECK(stages.now() - before <= seconds(1));
  CHECK(stages.Verdict().ok());
  CHECK_FALSE(stages.Next(milliseconds(9000)));
  CHECK(stages.Verdict().ok());
  stages.Next(milliseconds(500));
  CHECK(absl::IsUnavailable(stages.Verdict()));
  CHECK_THAT(std::string(stages.Verdict().message()), ContainsSubstring("stage 1"));
}

TEST_CASE("a late step is detected, and the message says what it waits for") {
  Watched stages(1);
  stages.Finish(1);
  stages.Send(2);
  stages.Say(0, 2, 1, v1::STEP_ACTIVITY_WAIT_MASK);
  const auto before = stages.now();
  const auto change = stages.Next(seconds(60));
  REQUIRE(change);
  CHECK(change->kind == StallKind::kStep);
  CHECK_THAT(change->text, ContainsSubstring("step 2") && ContainsSubstring("grammar mask"));
  CHECK(stages.now() - before <= seconds(1));

  // The stall ends.
  stages.Say(0, 2, 2, v1::STEP_ACTIVITY_IDLE);
  const auto back = stages.Next(seconds(1));
  REQUIRE(back);
  CHECK(back->kind == StallKind::kNone);
  CHECK(stages.watch().Stalled()[0].empty());
}

TEST_CASE("a long step gets three times its expected time, and a computing stage is not lost") {
  Watched stages(1, /*largest=*/seconds(20));
  stages.Send(1, {.n_rows = 512, .n_pairs = 512, .n_logits = 1});
  stages.Say(0, 1, 0, v1::STEP_ACTIVITY_COMPUTE);
  CHECK_FALSE(stages.Next(seconds(59)));
  const auto change = stages.Next(seconds(1));
  REQUIRE(change);
  CHECK(change->kind == StallKind::kStep);
  // Overdue, but it computes layer after layer: a slow stage is not lost.
  CHECK_FALSE(stages.Next(seconds(600), /*works=*/true));
  CHECK(stages.Verdict().ok());
  CHECK_FALSE(stages.Next(milliseconds(9900)));
  CHECK(stages.Verdict().ok());
  CHECK_FALSE(stages.Next(milliseconds(300)));
  CHECK_FALSE(stages.Verdict().ok());
}

TEST_CASE("only the stage that holds a step is blamed, not the stages that wait for it") {
  Watched stages(3);
  stages.Finish(1);
  for (uint64_t step = 2; step <= 5; ++step) stages.Send(step);
  // Stage 1 is stuck in step 2: stage 0 cannot send, and stage 2 receives nothing.
  stages.Say(0, 4, 3, v1::STEP_ACTIVITY_WAIT_SEND);
  stages.Say(1, 2, 1, v1::STEP_ACTIVITY_COMPUTE);
  stages.Say(2, 1, 1, v1::STEP_ACTIVITY_WAIT_INPUT);
  const auto change = stages.Next(seconds(60));
  REQUIRE(change);
  CHECK(change->stage == 1);
  CHECK_FALSE(stages.Next(seconds(60)));
}

TEST_CASE("the first stage may wait for tokens as long as the last stage computes") {
  Watched stages(2);
  stages.Finish(1);
  stages.Send(2);
  stages.Send(3);
  stages.Say(0, 3, 2, v1::STEP_ACTIVITY_WAIT_INPUT);
  stages.Say(1, 2, 1, v1::STEP_ACTIVITY_COMPUTE);
  const auto change = stages.Next(seconds(60));
  REQUIRE(change);
  CHECK(change->stage == 1);
  CHECK_FALSE(stages.Next(seconds(5)));

  // After step 2, its tokens are there; now stage 0 itself is stalled.
  stages.Say(1, 2, 2, v1::STEP_ACTIVITY_IDLE);
  REQUIRE(stages.Next(seconds(1)));
  const auto own = stages.Next(seconds(60));
  REQUIRE(own);
  CHECK(own->stage == 0);
}

TEST_CASE("a stage that hangs after sending a step is blamed, even if the others finish it") {
  Watched stages(3);
  stages.Finish(1);
  stages.Send(2);
  stages.Say(0, 2, 2, v1::STEP_ACTIVITY_IDLE);
  stages.Say(1, 2, 1, v1::STEP_ACTIVITY_WAIT_SEND);
  stages.Say(2, 2, 2, v1::STEP_ACTIVITY_IDLE);
  const auto change = stages.Next(seconds(60));
  REQUIRE(change);
  CHECK(change->stage == 1);
  CHECK(change->kind == StallKind::kStep);
}

TEST_CASE("if two devices hold steps, the stage with the oldest step is blamed") {
  Watched stages(2);
  stages.Finish(1);
  stages.Send(2);
  stages.Send(3);
  stages.Say(0, 3, 2, v1::STEP_ACTIVITY_ON_DEVICE);
  stages.Say(1, 3, 1, v1::STEP_ACTIVITY_ON_DEVICE);
  const auto change = stages.Next(seconds(60));
  REQUIRE(change);
  CHECK(change->stage == 1);
  CHECK_FALSE(stages.Next(seconds(60)));
}

TEST_CASE("if a stage never receives a step, the one that should send its metadata is lost first") {
  Watched stages(3);
  stages.Finish(1);
  stages.Send(2);
  stages.Send(3);
  stages.Say(0, 3, 2, v1::STEP_ACTIVITY_ON_DEVICE);
  // Stage 1 has done nothing wrong: stage 0's device holds back what it needs.
  const auto first = stages.Next(seconds(60));
  REQUIRE(first);
  CHECK(first->stage == 0);
  CHECK(first->kind == StallKind::kStep);
  CHECK_THAT(first->text, ContainsSubstring("metadata of step 2") && ContainsSubstring("stage 1"));
  CHECK(stages.watch().IsStalled(1));
  CHECK_FALSE(stages.watch().IsStalled(2));
  CHECK_FALSE(stages.Next(seconds(9)));
  stages.Next(seconds(1));
  CHECK_THAT(std::string(stages.Verdict().message()), ContainsSubstring("stage 0 is lost"));

  // The metadata comes: nobody is stalled.
  stages.Say(1, 2, 2, v1::STEP_ACTIVITY_IDLE);
  stages.Say(2, 2, 2, v1::STEP_ACTIVITY_IDLE);
  stages.Say(0, 3, 3, v1::STEP_ACTIVITY_IDLE);
  REQUIRE(stages.Next(seconds(1)));
  CHECK(stages.Verdict().ok());
}

TEST_CASE("a process that was stopped and continues gets the full time for its step") {
  Watched stages(1);
  stages.Finish(1);
  stages.Send(2);
  stages.Say(0, 2, 1, v1::STEP_ACTIVITY_COMPUTE);
  stages.Silence(0);
  REQUIRE(stages.Next(seconds(60)));
  CHECK_FALSE(stages.Next(seconds(5)));
  stages.Say(0, 2, 1, v1::STEP_ACTIVITY_COMPUTE);
  const auto back = stages.Next(milliseconds(200));
  REQUIRE(back);
  CHECK(back->kind == StallKind::kNone);
}

TEST_CASE("a stall does not raise a step's expected time, but slow computing does") {
  for (const bool works : {false, true}) {
    Watched stages(1);
    stages.Finish(1);
    stages.Send(2);
    stages.Say(0, 2, 1, v1::STEP_ACTIVITY_COMPUTE);
    REQUIRE(stages.Next(seconds(60), works));
    CHECK_FALSE(stages.Next(seconds(8), works));
    stages.Say(0, 2, 2, v1::STEP_ACTIVITY_IDLE);
    REQUIRE(stages.Next(seconds(1)));
    stages.Send(3);
    stages.Say(0, 3, 2, v1::STEP_ACTIVITY_COMPUTE);
    CHECK(stages.Next(milliseconds(1500)).has_value() == !works);
  }
}

TEST_CASE("a plan that a stage never receives or starts is a stall of that stage") {
  for (const bool receives : {false, true}) {
    Watched stages(1);
    stages.Finish(1);
    stages.Send(2);
    if (receives) stages.Receive(0, 2);
    const auto change = stages.Next(seconds(60));
    REQUIRE(change);
    CHECK_THAT(change->text,
               ContainsSubstring(receives ? "has not started it" : "has not received it"));
  }
}

TEST_CASE("a stage that has a step's metadata and does not start it is blamed alone") {
  Watched stages(2);
  stages.Finish(1);
  stages.Send(2);
  stages.Say(0, 2, 2, v1::STEP_ACTIVITY_IDLE);
  stages.Receive(1, 2);
  const auto change = stages.Next(seconds(60));
  REQUIRE(change);
  CHECK(change->stage == 1);
  CHECK_THAT(change->text, ContainsSubstring("has not started it"));
  CHECK_FALSE(stages.watch().IsStalled(0));
  CHECK_FALSE(stages.Next(seconds(5)));
}

TEST_CASE("a watch that was stopped itself blames no stage for that time") {
  Watched stages(2);
  stages.Finish(1);
  stages.Send(2);
  stages.Say(0, 2, 1, v1::STEP_ACTIVITY_COMPUTE);
  stages.Sleep(seconds(100));
  CHECK(stages.watch().Tick(stages.now()).empty());
  CHECK(stages.Verdict().ok());
  // The step's time continues from its old value.
  CHECK_FALSE(stages.Next(milliseconds(500)));
  CHECK(stages.Next(milliseconds(600)));
}

}  // namespace
}  // namespace stagecoach::router
