// Tells a stage that has stopped, or does not finish a step, from one that computes for long. The
// clock is the caller's.
//
// Two signs: a stage that says nothing (its process is stopped, its host gone), and one that says
// again and again that it has not finished a step which it could finish: everything that the step
// needs from other stages is there. A stage that waits for a stalled one is not stalled itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "router/dispatch/step_cost.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

struct StallLimits {
  using Duration = std::chrono::steady_clock::duration;

  Duration silence = std::chrono::seconds(1);  // without a word: a stage is stalled
  // With a step that is not finished for so long, and for so many times what such a step takes.
  Duration least_step = std::chrono::seconds(1);
  double step_times = 3;
  // Stalled without any movement for so long, from when the step was due: the pipeline is lost.
  Duration end = std::chrono::seconds(10);
};

// How a stage stalls.
enum class StallKind : uint8_t { kNone, kSilent, kStep };

// Not thread-safe.
class StallWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  // By stage: its name for people ("stage 1 (10.0.0.2:9100)"), and what steps cost it.
  struct Stage {
    std::string name;
    StepCost cost;
  };

  // All stages have answered at `now`.
  StallWatch(std::vector<Stage> stages, const StallLimits& limits, Time now);

  // A plan goes to the first stage. Steps come in their order.
  void Sent(uint64_t step, const StepSize& size, Time now);
  void Heard(size_t stage, const v1::StepProgress& progress, Time now);
  // The last stage's result of a step is here.
  void Result(uint64_t step, Time now);

  // What has changed since the last call: lines for a log.
  struct Change {
    size_t stage = 0;
    StallKind kind = StallKind::kNone;  // kNone: it goes on
    std::string text;                   // begins with the stage's name
  };
  // To be called every kTick. A caller that was held up itself blames nobody for that time.
  std::vector<Change> Tick(Time now);
  static constexpr Duration kTick = std::chrono::milliseconds(100);

  // By stage: in what way it stalls, in words; empty: it does not.
  std::vector<std::string> Stalled() const;
  bool IsStalled(size_t stage) const { return stages_[stage].stalled != StallKind::kNone; }
  // UNAVAILABLE: a stage has stalled for too long, and which.
  absl::Status Verdict(Time now) const;

 private:
  struct State {
    Stage about;
    v1::StepProgress last;
    Time heard;              // the last word
    Time moved;              // the last movement
    uint64_t held_step = 0;  // that it could finish; 0: none
    Time held_since;
    StallKind stalled = StallKind::kNone;
    Time stalled_since;
    std::string why;
  };

  bool CouldFinish(size_t stage, uint64_t step) const;
  // `moved`: the stage's last movement before.
  void SetDone(size_t stage, uint64_t done, Time moved, Time now);
  // What has become possible or impossible for each.
  void SettleHeld(Time now);
  void ShiftBy(Duration gap, Time now);
  StallKind Judge(const State& state, Time now) const;
  Duration Expected(const State& state) const;
  std::string Describe(const State& state, StallKind kind, Time now) const;

  const StallLimits limits_;
  std::vector<State> stages_;
  std::map<uint64_t, StepSize> steps_;  // that some stage has not finished
  Time last_tick_;
};

}  // namespace stagecoach::router
