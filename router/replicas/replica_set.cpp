#include "router/replicas/replica_set.h"

#include <utility>

#include "common/status.h"
#include "router/replicas/snapshot_sum.h"

namespace stagecoach::router {

// Stands before a sequence's own sink, and tells the set how far the sequence is. The scheduler
// that has the sequence calls it.
class ReplicaSet::Sink final : public SequenceSink {
 public:
  Sink(ReplicaSet* set, SequenceId id, std::shared_ptr<SequenceSink> sink)
      : set_(*set), id_(id), sink_(std::move(sink)) {}

  // Another scheduler gets the sequence.
  void Moves() { prefilled_ = false; }

  void OnQueued() override {
    if (!std::exchange(queued_, true)) sink_->OnQueued();
  }
  void OnTracedStep(const TracedStep& step) override { sink_->OnTracedStep(step); }
  void OnOutput(const SequenceOutput& output, const SequenceTimes& times) override {
    sink_->OnOutput(output, times);
    if (output.finish != Finish::kNone) {
      set_.Ended(id_);
    } else if (!output.tokens.empty() && !std::exchange(prefilled_, true)) {
      set_.Prefilled(id_);
    }
  }
  void OnError(const absl::Status& status) override {
    sink_->OnError(status);
    set_.Ended(id_);
  }

 private:
  ReplicaSet& set_;
  const SequenceId id_;
  const std::shared_ptr<SequenceSink> sink_;
  bool queued_ = false;
  bool prefilled_ = false;
};

absl::StatusOr<std::unique_ptr<ReplicaSet>> ReplicaSet::Start(
    const std::vector<ReplicaOptions>& replicas) {
  std::vector<SchedulerConfig> configs;
  for (const ReplicaOptions& replica : replicas) configs.push_back(replica.config);
  std::unique_ptr<ReplicaSet> set(new ReplicaSet(configs, replicas));
  set->schedulers_.reserve(replicas.size());  // hooks read it
  for (size_t i = 0; i < replicas.size(); ++i) {
    SC_ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler,
                        Scheduler::Start(replicas[i].config, replicas[i].client, set->HooksOf(i)));
    set->schedulers_.push_back(std::move(scheduler));
  }
  return set;
}

ReplicaSet::~ReplicaSet() { Stop(); }

void ReplicaSet::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  for (const auto& scheduler : schedulers_) scheduler->Stop();
}

SchedulerHooks ReplicaSet::HooksOf(size_t replica) {
  return {.on_state = [this, replica](PipelineState state) { SetState(replica, state); },
          .may_move = [this, replica] { return ShouldLeave(replica); },
          .move = [this](Requests requests) { Move(std::move(requests)); }};
}

void ReplicaSet::SetState(size_t replica, PipelineState state) {
  const MutexLock lock(mutex_);
  chooser_.SetState(replica, state);
  if (state != PipelineState::kWorks) return;
  // Those that are still lost have a place to go now.
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    if (chooser_.ShouldLeave(i)) schedulers_[i]->AskSnapshot([](const SchedulerSnapshot&) {});
  }
}

bool ReplicaSet::ShouldLeave(size_t replica) {
  const MutexLock lock(mutex_);
  return !stopping_ && chooser_.ShouldLeave(replica);
}

void ReplicaSet::Submit(Requests requests) {
  if (requests.empty()) return;
  const MutexLock lock(mutex_);
  for (const auto& request : requests) {
    request->sink = std::make_shared<Sink>(this, request->id, std::move(request->sink));
    live_[request->id].sink = std::static_pointer_cast<Sink>(request->sink);
  }
  Place(std::move(requests));
}

void ReplicaSet::Move(Requests requests) {
  const MutexLock lock(mutex_);
  for (const auto& request : requests) {
    const auto found = live_.find(request->id);
    if (found == live_.end()) continue;
    chooser_.Prefilled(found->second.replica, found->second.n_to_prefill);
    chooser_.Left(found->second.replica);
    found->second.sink->Moves();
  }
  // Meanwhile cancelled ones are dropped.
  std::erase_if(requests, [this](const auto& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !live_.contains(request->id);
  });
  if (requests.empty()) return;
  if (!requests.front()->past) return Place(std::move(requests));
  for (auto& request : requests) {
    Requests alone;
    alone.push_back(std::move(request));
    Place(std::move(alone));
  }
}

void ReplicaSet::Place(Requests requests) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].is_stalled) chooser_.SetStalled(i, replicas_[i].is_stalled());
  }
  const ReplicaChooser::Choice choice = chooser_.Choose(*requests.front(), requests.size());
  for (const auto& request : requests) {
    Live& live = live_[request->id];
    live.replica = choice.replica;
    live.n_to_prefill = request == requests.front() ? choice.n_to_prefill : 0;
  }
  schedulers_[choice.replica]->Submit(std::move(requests));
}

void ReplicaSet::Cancel(SequenceId id) {
  const MutexLock lock(mutex_);
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  schedulers_[found->second.replica]->Cancel(id);
  Forget(id);
}

void ReplicaSet::Prefilled(SequenceId id) {
  const MutexLock lock(mutex_);
  const auto found = live_.find(id);
  if (found == live_.end()) return;  // cancelled
  chooser_.Prefilled(found->second.replica, std::exchange(found->second.n_to_prefill, 0));
}

void ReplicaSet::Ended(SequenceId id) {
  const MutexLock lock(mutex_);
  Forget(id);
}

void ReplicaSet::Forget(SequenceId id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  chooser_.Prefilled(found->second.replica, found->second.n_to_prefill);
  chooser_.Left(found->second.replica);
  live_.erase(found);
  if (!live_.empty()) return;
  for (std::promise<void>& drain : drains_) drain.set_value();
  drains_.clear();
}

std::future<void> ReplicaSet::Drain() {
  const MutexLock lock(mutex_);
  for (const auto& scheduler : schedulers_) scheduler->Drain();
  std::promise<void> drain;
  std::future<void> future = drain.get_future();
  if (live_.empty()) {
    drain.set_value();
  } else {
    drains_.push_back(std::move(drain));
  }
  return future;
}

void ReplicaSet::AskSnapshot(std::function<void(SchedulerSnapshot)> done) {
  struct Gathered {
    Mutex mutex;
    SchedulerSnapshot sum ABSL_GUARDED_BY(mutex);
    size_t n_left ABSL_GUARDED_BY(mutex) = 0;
  };
  auto gathered = std::make_shared<Gathered>();
  {
    const MutexLock lock(gathered->mutex);
    gathered->sum.down = true;
    gathered->n_left = schedulers_.size();
  }
  for (const auto& scheduler : schedulers_) {
    scheduler->AskSnapshot([gathered, done](const SchedulerSnapshot& one) {
      MutexLock lock(gathered->mutex);
      AddSnapshot(one, gathered->sum);
      if (--gathered->n_left > 0) return;
      SchedulerSnapshot sum = std::move(gathered->sum);
      lock.unlock();
      done(std::move(sum));
    });
  }
}

}  // namespace stagecoach::router
