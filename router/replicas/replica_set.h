// Several pipelines with the same model behind one scheduler interface. Each has a scheduler of its
// own. When a pipeline is lost, its sequences go on at another one: the lost pipeline's scheduler
// forgets them, and the other one computes prompt and generated tokens again, as after a
// preemption. Pipelines can be added and drained while others work; each keeps its number.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/append_only.h"
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
  // Numbers that a set can give to replicas, also to those that are drained.
  static constexpr size_t kMostReplicas = 1024;

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

  // Starts a scheduler for one more replica, which gets requests from now on. Its number is size().
  // Neither call it twice at the same time nor during Stop. RESOURCE_EXHAUSTED after kMostReplicas.
  absl::Status Add(const ReplicaOptions& options);
  // From now on, other replicas get the requests. Blocks until the replica has no sequence; it then
  // never gets one again, and its client may be failed and stopped. `lose`, if not null, fails the
  // client at once, so that the sequences go on at the others. NOT_FOUND: no replica has this
  // number. FAILED_PRECONDITION: it drains or is lost for good already, or no other one works.
  // ABORTED: all others were lost for good meanwhile, so it goes on. CANCELLED: the same, after
  // `stop` or Stop.
  absl::Status Close(size_t replica, const std::function<void()>& lose = nullptr,
                     const std::stop_token& stop = {});

  // Whether Close has begun.
  bool IsDraining(size_t replica);

  // All replicas so far.
  size_t size() const { return replicas_.size(); }
  // A replica's own scheduler, to look at it by itself.
  Scheduler& scheduler(size_t replica) const { return *replicas_[replica].scheduler; }

 private:
  class Sink;

  // A sequence that has not ended.
  struct Live {
    size_t replica = 0;
    uint64_t n_to_prefill = 0;  // tokens before its next token; 0 afterwards
    std::shared_ptr<Sink> sink;
  };
  using Requests = std::vector<std::unique_ptr<SequenceRequest>>;

  struct Replica {
    std::function<bool()> is_stalled;
    std::unique_ptr<Scheduler> scheduler;
  };

  ReplicaSet() : chooser_({}) {}

  SchedulerHooks HooksOf(size_t replica);
  void SetState(size_t replica, PipelineState state);
  bool ShouldLeave(size_t replica);
  absl::Status MayClose(size_t replica) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells sequences that are still lost that they have a place to go now.
  void WakeLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives sequences of a lost pipeline to others.
  void Move(Requests requests);
  // Gives requests with the same prompt to the best replica.
  void Place(Requests requests) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The sequence has a token for the first time since it was placed.
  void Prefilled(SequenceId id);
  void Ended(SequenceId id);
  void Forget(SequenceId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The sequence is no longer at its replica.
  void Left(const Live& live) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;  // what Close waits for
  ReplicaChooser chooser_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<SequenceId, Live> live_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::promise<void>> drains_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  AppendOnly<Replica, kMostReplicas> replicas_;  // last: their threads use all above
};

}  // namespace stagecoach::router
