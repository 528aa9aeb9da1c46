// The scheduler without its thread: takes events and returns plans. Deterministic.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "router/scheduler/planner.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

// INVALID_ARGUMENT if a value is out of range, or a KV group is too small for a sequence of
// max_model_len tokens.
absl::Status ValidateConfig(const SchedulerConfig& config);

// Not thread-safe. Its methods call sinks.
class SchedulerCore {
 public:
  // REQUIRES: ValidateConfig(config).
  explicit SchedulerCore(const SchedulerConfig& config, SchedulerHooks hooks = {});

  // Either queues all of `requests`, or reports the same error to all of their sinks.
  void Submit(std::vector<std::unique_ptr<SequenceRequest>> requests,
              std::chrono::steady_clock::time_point submitted);
  void Cancel(SequenceId id);
  void Result(const v1::StepResult& result);
  // All stages have read the first n_blocks blocks of a fetch from the KV store.
  void Fetched(const v1::KvFetched& fetched);
  // Refuses new submissions from now on, with the reason of the first call. The next plan still
  // admits waiting calls; after it, calls that have not begun end with that reason.
  void Drain(const absl::Status& reason);
  // The pipeline is lost, and another epoch may follow: no plan comes until Resume, and new
  // sequences are queued. A sequence that was alone in flight when the pipeline was lost again and
  // again ends with INTERNAL.
  void Interrupt(const absl::Status& reason);
  // All stages have joined a new epoch. kv_kept: every stage has the KV cache of the epochs before,
  // so running sequences go on after their last token. If not, all is computed again.
  void Resume(uint64_t epoch, bool kv_kept);
  // The pipeline is lost for good: ends every sequence that cannot go on elsewhere with
  // UNAVAILABLE, and refuses new ones.
  void Down(const absl::Status& reason);

  // Null if there is nothing to send now. While the pipeline is lost, this moves sequences instead.
  std::unique_ptr<v1::StepPlan> NextPlan();

  // Fetches that all stages are to carry out in this epoch. Each is answered by Fetched, unless the
  // pipeline is lost.
  std::vector<std::unique_ptr<v1::KvFetch>> TakeFetches() { return state_.loads().TakeFetches(); }

  // Gives the sink of KV events what has happened since the last call.
  void PublishKvEvents() { state_.kv().PublishEvents(); }

  bool empty() const { return state_.empty(); }
  // Not OK after Down, or after a result that does not match its plan: the reason why no more plans
  // come.
  absl::Status failure() const { return down_ ? refused_ : absl::OkStatus(); }
  SchedulerSnapshot Snapshot() const;
  const SchedulerState& state() const { return state_; }

 private:
  void Tell(PipelineState state);
  bool MayMove() const;
  // Lets sequences go on at another pipeline, if one works. Suspects stay, unless `with_suspects`.
  void MoveOn(bool with_suspects);
  // Takes back the steps in flight, and ends the sequence that is to blame for the loss.
  void TakeBack(const absl::Status& loss);
  absl::Status Admissible(const std::vector<std::unique_ptr<SequenceRequest>>& requests) const;
  absl::Status MakeRoomInQueue(const std::vector<std::unique_ptr<SequenceRequest>>& requests);

  const SchedulerHooks hooks_;
  SchedulerState state_;
  Planner planner_;
  absl::Status refused_;  // not OK: the reason why new submissions are refused
  uint64_t n_evicted_ = 0;
  bool drains_ = false;  // Drain was called, and no plan has come since
  bool interrupted_ = false;
  bool down_ = false;
};

}  // namespace stagecoach::router
