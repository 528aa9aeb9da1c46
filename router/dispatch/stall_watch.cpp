#include "router/dispatch/stall_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "router/dispatch/stage_loss.h"

namespace stagecoach::router {
namespace {

using std::chrono::milliseconds;

// If two ticks are further apart than this, the watch itself was blocked.
constexpr auto kLateTick = milliseconds(500);
// How long before a limit a stall is declared, so that it is reported within the limit: stages
// report every 100 ms, the watch looks every 100 ms, and the rest is for a busy machine.
constexpr auto kReportTime = milliseconds(300);

double Seconds(StallWatch::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// What a stage does about `step`, which it has not finished.
std::string_view Words(const v1::StepProgress& progress, uint64_t step) {
  switch (progress.activity()) {
    case v1::STEP_ACTIVITY_WAIT_INPUT:
      return "it waits for input from the previous stage";
    case v1::STEP_ACTIVITY_COMPUTE:
      return "it computes";
    case v1::STEP_ACTIVITY_WAIT_MASK:
      return "it waits for a grammar mask";
    case v1::STEP_ACTIVITY_WAIT_SEND:
      return "it cannot send its output";
    case v1::STEP_ACTIVITY_ON_DEVICE:
      return "its device is still computing it";
    default:
      return progress.received() < step ? "it has not received it" : "it has not started it";
  }
}

}  // namespace

StallWatch::StallWatch(std::vector<Stage> stages, const StallLimits& limits, Time now)
    : limits_(limits), last_tick_(now) {
  for (Stage& stage : stages) {
    stages_.push_back({.about = std::move(stage), .last = {}, .heard = now, .moved = now});
  }
}

void StallWatch::Sent(uint64_t step, const StepSize& size, Time now) {
  steps_[step] = size;
  SettleHeld(now);
}

void StallWatch::Heard(size_t stage, const v1::StepProgress& progress, Time now) {
  State& state = stages_[stage];
  const Time moved = state.moved;
  // A stopped process could not work on its step.
  if (state.stalled == StallKind::kSilent) state.held_since += now - state.heard;
  state.heard = now;
  if (progress.work() != state.last.work() || progress.begun() > state.last.begun()) {
    state.moved = now;
  }
  state.last.set_received(std::max(state.last.received(), progress.received()));
  state.last.set_begun(std::max(state.last.begun(), progress.begun()));
  state.last.set_activity(progress.activity());
  state.last.set_work(progress.work());
  SetDone(stage, progress.done(), moved, now);
}

void StallWatch::Result(uint64_t step, Time now) {
  SetDone(stages_.size() - 1, step, stages_.back().moved, now);
}

void StallWatch::SetDone(size_t stage, uint64_t done, Time moved, Time now) {
  State& state = stages_[stage];
  if (done > state.last.done()) {
    // The time of a stall is not the cost of a step. After a stall, learn only if the stage worked
    // on the step for most of the time.
    const Duration took = now - state.held_since;
    const bool worked = state.stalled == StallKind::kNone ||
                        (state.stalled == StallKind::kStep && moved - state.held_since > took / 2);
    if (state.held_step != 0 && worked) {
      for (uint64_t step = state.held_step; step <= done; ++step) {
        if (const auto size = steps_.find(step); size != steps_.end()) {
          state.about.cost.Learn(size->second, took);
        }
      }
    }
    state.last.set_done(done);
    state.moved = now;
    state.held_step = 0;
    // A stage may pause after sending a step and before reporting it done. Then later stages finish
    // the step first.
    const auto last = std::min_element(
        stages_.begin(), stages_.end(),
        [](const State& a, const State& b) { return a.last.done() < b.last.done(); });
    steps_.erase(steps_.begin(), steps_.upper_bound(last->last.done()));
  }
  SettleHeld(now);
}

bool StallWatch::CouldFinish(size_t stage, uint64_t step) const {
  const State& state = stages_[stage];
  if (!steps_.contains(step)) return false;
  if (stage > 0 && stages_[stage - 1].last.done() < step) return false;
  const v1::StepActivity activity = state.last.activity();
  const bool on_device = activity == v1::STEP_ACTIVITY_ON_DEVICE;
  // Stage 0 may have to wait for tokens from the last stage.
  if (stage == 0 && (on_device || activity == v1::STEP_ACTIVITY_WAIT_INPUT) &&
      stages_.back().last.done() + 1 < step) {
    return false;
  }
  // Backpressure: the next stage accepts no more.
  return !(stage + 1 < stages_.size() && (on_device || activity == v1::STEP_ACTIVITY_WAIT_SEND) &&
           stages_[stage + 1].last.done() + 1 < step);
}

void StallWatch::SettleHeld(Time now) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    State& state = stages_[i];
    const uint64_t next = state.last.done() + 1;
    if (!CouldFinish(i, next)) {
      state.held_step = 0;
    } else if (state.held_step != next) {
      state.held_step = next;
      state.held_since = now;
    }
  }
}

void StallWatch::ShiftBy(Duration gap, Time now) {
  for (State& state : stages_) {
    for (Time* time : {&state.heard, &state.moved, &state.held_since, &state.stalled_since}) {
      *time = std::min(*time + gap, now);
    }
  }
}

StallWatch::Duration StallWatch::Expected(const State& state) const {
  const auto size = steps_.find(state.held_step);
  return size == steps_.end() ? Duration(0) : state.about.cost.Expect(size->second);
}

StallKind StallWatch::Judge(const State& state, Time now) const {
  if (now - state.heard > limits_.silence - kReportTime) return StallKind::kSilent;
  if (state.held_step == 0) return StallKind::kNone;
  const auto due =
      std::max(limits_.least_step,
               std::chrono::duration_cast<Duration>(Expected(state) * limits_.step_times));
  return now - state.held_since > due - kReportTime ? StallKind::kStep : StallKind::kNone;
}

bool StallWatch::NeverReceived(const State& state, Time now) const {
  return Judge(state, now) == StallKind::kStep && state.last.received() < state.held_step &&
         state.last.begun() < state.held_step;
}

const StallWatch::State& StallWatch::HeldUp(size_t stage) const {
  return stages_[stages_[stage].holds_up_next ? stage + 1 : stage];
}

std::string StallWatch::Describe(size_t stage, StallKind kind, Time now) const {
  const State& state = HeldUp(stage);
  if (stages_[stage].holds_up_next) {
    return fmt::format(
        "may not have passed on the metadata of step {}, which {} has not received for {:.1f} s",
        state.held_step, state.about.name, Seconds(now - state.held_since));
  }
  if (kind == StallKind::kSilent) {
    const std::string doing =
        state.last.begun() > state.last.done()
            ? fmt::format("in step {}: {}", state.last.done() + 1,
                          std::string(Words(state.last, state.last.done() + 1)))
            : fmt::format("after step {}", state.last.done());
    return fmt::format(
        "has said nothing for {:.1f} s (last seen {}): its process is stopped, or its host is "
        "unreachable",
        Seconds(now - state.heard), doing);
  }
  const auto size = steps_.find(state.held_step);
  return fmt::format(
      "has not finished step {} ({} tokens) for {:.1f} s: {}; a step of this size usually takes "
      "{:.3f} s",
      state.held_step, size == steps_.end() ? 0 : size->second.n_rows,
      Seconds(now - state.held_since), std::string(Words(state.last, state.held_step)),
      Seconds(Expected(state)));
}

std::vector<StallWatch::Change> StallWatch::Tick(Time now) {
  if (now - last_tick_ > kLateTick) ShiftBy(now - last_tick_ - kTick, now);
  last_tick_ = now;
  std::vector<Change> changes;
  for (size_t i = 0; i < stages_.size(); ++i) {
    State& state = stages_[i];
    StallKind kind = Judge(state, now);
    state.holds_up_next =
        kind == StallKind::kNone && i + 1 < stages_.size() && NeverReceived(stages_[i + 1], now);
    if (state.holds_up_next) kind = StallKind::kStep;
    if (kind != StallKind::kNone) state.why = Describe(i, kind, now);
    if (kind == state.stalled) continue;
    if (kind == StallKind::kNone) {
      state.why.clear();
      changes.push_back({i, kind,
                         fmt::format("{} continues after {:.1f} s", state.about.name,
                                     Seconds(now - state.stalled_since))});
    } else {
      if (state.stalled == StallKind::kNone) {
        state.stalled_since = kind == StallKind::kSilent ? state.heard : HeldUp(i).held_since;
      }
      changes.push_back({i, kind, fmt::format("{} {}", state.about.name, state.why)});
    }
    state.stalled = kind;
  }
  return changes;
}

std::vector<std::string> StallWatch::Stalled() const {
  std::vector<std::string> texts;
  texts.reserve(stages_.size());
  for (const State& state : stages_) texts.push_back(state.why);
  return texts;
}

absl::Status StallWatch::Verdict(Time now) const {
  for (size_t i = 0; i < stages_.size(); ++i) {
    const State& state = stages_[i];
    if (state.stalled == StallKind::kNone) continue;
    const State& held = HeldUp(i);
    const Time due = state.stalled == StallKind::kSilent
                         ? state.heard
                         : std::max(held.held_since + Expected(held), held.moved);
    if (now - due <= limits_.end) continue;
    return WithLoss(absl::UnavailableError(fmt::format("{} is lost: it {}", state.about.name,
                                                       Describe(i, state.stalled, now))),
                    {.stage = static_cast<uint32_t>(i), .cause = LossCause::kStalled});
  }
  return absl::OkStatus();
}

}  // namespace stagecoach::router
