// Distinguishes a stalled stage from one whose step takes long. The caller provides the clock.
//
// There are two kinds of stall. A silent stage sends nothing: its process is stopped, or its host
// is gone. A stuck stage keeps reporting that a step is unfinished although it has everything that
// the step needs from other stages. A stage that waits for a stalled stage is not stalled itself.
//
// If a stage has not even received the metadata of a step, its own threads may hang, or the
// previous stage has not sent them, for example because a kernel on its GPU does not end. Both
// stages count as stalled then, and the previous one is lost first.
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

  // A stage without a message is reported as stalled within this time.
  Duration silence = std::chrono::seconds(1);
  // A stage that could finish a step but does not is reported as stalled within the longer of
  // least_step and step_times times the expected duration of the step.
  Duration least_step = std::chrono::seconds(1);
  double step_times = 3;
  // The pipeline is lost if a stalled stage makes no progress for this long after the step was due.
  Duration end = std::chrono::seconds(10);
};

// The kind of a stall.
enum class StallKind : uint8_t { kNone, kSilent, kStep };

// Not thread-safe.
class StallWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  // A stage's name for messages ("stage 1 (10.0.0.2:9100)"), and the cost of steps on it.
  struct Stage {
    std::string name;
    StepCost cost;
  };

  // One entry per stage. All stages have answered at `now`.
  StallWatch(std::vector<Stage> stages, const StallLimits& limits, Time now);

  // A plan was sent to the first stage. Call in step order.
  void Sent(uint64_t step, const StepSize& size, Time now);
  void Heard(size_t stage, const v1::StepProgress& progress, Time now);
  // The last stage's result of a step has arrived.
  void Result(uint64_t step, Time now);

  // One change since the last call, as a log line.
  struct Change {
    size_t stage = 0;
    StallKind kind = StallKind::kNone;  // kNone: the stall has ended
    std::string text;                   // begins with the stage's name
  };
  // Call it every kTick. Time in which the caller itself was blocked does not count against the
  // stages.
  std::vector<Change> Tick(Time now);
  static constexpr Duration kTick = std::chrono::milliseconds(100);

  // Per stage: a description of its stall; empty: not stalled.
  std::vector<std::string> Stalled() const;
  bool IsStalled(size_t stage) const { return stages_[stage].stalled != StallKind::kNone; }
  // UNAVAILABLE, with a StageLoss: a stage has been stalled for too long; the message names it.
  absl::Status Verdict(Time now) const;

 private:
  struct State {
    Stage about;
    v1::StepProgress last;
    Time heard;              // time of the last message
    Time moved;              // time of the last progress
    uint64_t held_step = 0;  // step that the stage could finish now; 0: none
    Time held_since;
    StallKind stalled = StallKind::kNone;
    Time stalled_since;
    bool holds_up_next = false;  // stalled because the next stage has not received its step
    std::string why;
  };

  bool CouldFinish(size_t stage, uint64_t step) const;
  // `moved`: time of the stage's last progress before this message.
  void SetDone(size_t stage, uint64_t done, Time moved, Time now);
  // Updates held_step of each stage: some steps became possible to finish, others impossible.
  void SettleHeld(Time now);
  void ShiftBy(Duration gap, Time now);
  StallKind Judge(const State& state, Time now) const;
  // Whether the stage is stalled and has not received the metadata of its step.
  bool NeverReceived(const State& state, Time now) const;
  // The stage whose step a stalled stage holds up: the next one, or itself.
  const State& HeldUp(size_t stage) const;
  Duration Expected(const State& state) const;
  std::string Describe(size_t stage, StallKind kind, Time now) const;

  const StallLimits limits_;
  std::vector<State> stages_;
  std::map<uint64_t, StepSize> steps_;  // steps that some stage has not finished
  Time last_tick_;
};

}  // namespace stagecoach::router
