// The scheduler without its thread: events in, plans out. Deterministic.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "router/scheduler/planner.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

// INVALID_ARGUMENT when a value is out of range or a sequence of max_model_len tokens would not fit
// in a KV group.
absl::Status ValidateConfig(const SchedulerConfig& config);

// Not thread-safe. Calls sinks from within its methods.
class SchedulerCore {
 public:
  // REQUIRES: ValidateConfig(config).
  explicit SchedulerCore(const SchedulerConfig& config);

  // All of `requests` are queued, or all get the same error.
  void Submit(std::vector<std::unique_ptr<SequenceRequest>> requests,
              std::chrono::steady_clock::time_point submitted);
  void Cancel(SequenceId id);
  void Result(const v1::StepResult& result);
  // Refuses submissions from now on, for the first reason given, and with the next plan ends calls
  // that have not begun by then.
  void Drain(const absl::Status& reason);
  // The pipeline is lost: ends every sequence with UNAVAILABLE and refuses new ones.
  void Down(const absl::Status& reason);

  // Null when there is nothing to send now.
  std::unique_ptr<v1::StepPlan> NextPlan();

  bool empty() const { return state_.empty(); }
  // Not OK after Down, or a result that does not fit: why no plan comes any more.
  absl::Status failure() const { return down_ ? refused_ : absl::OkStatus(); }
  SchedulerSnapshot Snapshot() const;
  const SchedulerState& state() const { return state_; }

 private:
  absl::Status Admissible(const std::vector<std::unique_ptr<SequenceRequest>>& requests) const;
  absl::Status MakeRoomInQueue(const std::vector<std::unique_ptr<SequenceRequest>>& requests);

  SchedulerState state_;
  Planner planner_;
  absl::Status refused_;  // not OK: why nothing is accepted any more
  uint64_t n_evicted_ = 0;
  bool drains_ = false;  // until the next plan
  bool down_ = false;
};

}  // namespace stagecoach::router
