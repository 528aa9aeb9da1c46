// Several pipelines with the same model behind one scheduler interface. Each has a scheduler of its
// own. When a pipeline is lost, its sequences go on at another one: the lost pipeline's scheduler
// forgets them, and the other one computes prompt and generated tokens again, as after a
// preemption.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/mutex.h"
#include "router/replicas/replica_chooser.h"
#include "router/scheduler/scheduler.h"

namespace stagecoach::router {

struct ReplicaOptions {
  SchedulerConfig config;
  StageClient* client = nullptr;  // outlives the set
  // One of its stages is stalled now. Any thread; must not block. Null: never.
  std::function<bool()> is_stalled;
};

// Thread-safe, but for Stop.
class ReplicaSet final : public Scheduler {
 public:
  // Starts a scheduler for each of one or more replicas. All have the same max_model_len.
  static absl::StatusOr<std::unique_ptr<ReplicaSet>> Start(
      const std::vector<ReplicaOptions>& replicas);
  ~ReplicaSet() override;

  void Stop() override;
  void Submit(std::vector<std::unique_ptr<SequenceRequest>> requests) override;
  void Cancel(SequenceId id) override;
  std::future<void> Drain() override;
  // The sum over all replicas. Calls `done` on the thread of one of their schedulers.
  void AskSnapshot(std::function<void(SchedulerSnapshot)> done) override;

  // The replicas' own schedulers, to look at each by itself.
  const std::vector<std::unique_ptr<Scheduler>>& schedulers() const { return schedulers_; }

 private:
  class Sink;

  // A sequence that has not ended.
  struct Live {
    size_t replica = 0;
    uint64_t n_to_prefill = 0;  // tokens before its next token; 0 afterwards
    std::shared_ptr<Sink> sink;
  };
  using Requests = std::vector<std::unique_ptr<SequenceRequest>>;

  ReplicaSet(const std::vector<SchedulerConfig>& configs, std::vector<ReplicaOptions> replicas)
      : replicas_(std::move(replicas)), chooser_(configs) {}

  SchedulerHooks HooksOf(size_t replica);
  void SetState(size_t replica, PipelineState state);
  bool ShouldLeave(size_t replica);
  // Gives sequences of a lost pipeline to others.
  void Move(Requests requests);
  // Gives requests with the same prompt to the best replica.
  void Place(Requests requests) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The sequence has a token for the first time since it was placed.
  void Prefilled(SequenceId id);
  void Ended(SequenceId id);
  void Forget(SequenceId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<ReplicaOptions> replicas_;
  Mutex mutex_;
  ReplicaChooser chooser_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<SequenceId, Live> live_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::promise<void>> drains_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Scheduler>> schedulers_;  // fixed after the start
};

}  // namespace stagecoach::router
