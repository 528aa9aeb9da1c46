#include "router/replicas/replica_set.h"

#include <utility>

#include "absl/strings/str_cat.h"
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
  std::unique_ptr<ReplicaSet> set(new ReplicaSet());
  for (const ReplicaOptions& replica : replicas) SC_RETURN_IF_ERROR(set->Add(replica));
  return set;
}

absl::Status ReplicaSet::Add(const ReplicaOptions& options) {
  if (replicas_.is_full()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the router has used up its ", kMostReplicas,
                     " numbers of replicas; they begin again when it is started again"));
  }
  const size_t replica = replicas_.size();
  {
    const MutexLock lock(mutex_);
    chooser_.Add(options.config);  // hooks need it
  }
  absl::StatusOr<std::unique_ptr<Scheduler>> scheduler =
      Scheduler::Start(options.config, options.client, HooksOf(replica));
  const MutexLock lock(mutex_);
  if (!scheduler.ok()) {
    chooser_.RemoveLast();
    return scheduler.status();
  }
  replicas_.Append(std::make_unique<Replica>(
      Replica{.is_stalled = options.is_stalled, .scheduler = *std::move(scheduler)}));
  chooser_.SetUse(replica, ReplicaChooser::Use::kOpen);
  if (chooser_.state(replica) == PipelineState::kWorks) WakeLost();
  return absl::OkStatus();
}

absl::Status ReplicaSet::MayClose(size_t replica) const {
  if (replica >= size()) return absl::NotFoundError(absl::StrCat("there is no replica ", replica));
  if (chooser_.use(replica) != ReplicaChooser::Use::kOpen) {
    const bool closed = chooser_.use(replica) == ReplicaChooser::Use::kClosed;
    return absl::FailedPreconditionError(
        absl::StrCat("replica ", replica, closed ? " is drained" : " drains already"));
  }
  if (chooser_.state(replica) == PipelineState::kGone) {
    return absl::FailedPreconditionError(
        absl::StrCat("replica ", replica, " is lost for good, and gets no requests anyway"));
  }
  if (!chooser_.HasOtherThatWorks(replica)) {
    return absl::FailedPreconditionError(
        absl::StrCat("no replica besides ", replica, " works now: add one first"));
  }
  return absl::OkStatus();
}

absl::Status ReplicaSet::Close(size_t replica, const std::function<void()>& lose,
                               const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const MutexLock lock(mutex_);
    changed_.notify_all();
  });
  MutexLock lock(mutex_);
  SC_RETURN_IF_ERROR(MayClose(replica));
  chooser_.SetUse(replica, ReplicaChooser::Use::kDraining);
  if (lose) {
    lock.unlock();
    lose();
    lock.lock();
  }
  const auto is_stopping = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || stop.stop_requested();
  };
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // What was lost on purpose cannot go on.
    return chooser_.n_sequences(replica) == 0 || is_stopping() ||
           (!lose && !chooser_.HasOtherLeft(replica));
  });
  absl::Status status;
  if (is_stopping()) {
    status = absl::CancelledError("the router is shutting down");
  } else if (!lose && !chooser_.HasOtherLeft(replica)) {
    status = absl::AbortedError(absl::StrCat(
        "the other replicas were lost for good meanwhile, so replica ", replica, " goes on"));
  }
  chooser_.SetUse(replica, status.ok() ? ReplicaChooser::Use::kClosed : ReplicaChooser::Use::kOpen);
  return status;
}

bool ReplicaSet::IsDraining(size_t replica) {
  const MutexLock lock(mutex_);
  return chooser_.use(replica) != ReplicaChooser::Use::kOpen;
}

ReplicaSet::~ReplicaSet() { Stop(); }

void ReplicaSet::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (size_t i = 0; i < size(); ++i) scheduler(i).Stop();
}

SchedulerHooks ReplicaSet::HooksOf(size_t replica) {
  return {.on_state = [this, replica](PipelineState state) { SetState(replica, state); },
          .may_move = [this, replica] { return ShouldLeave(replica); },
          .move = [this](Requests requests) { Move(std::move(requests)); }};
}

void ReplicaSet::SetState(size_t replica, PipelineState state) {
  const MutexLock lock(mutex_);
  chooser_.SetState(replica, state);
  changed_.notify_all();
  if (state == PipelineState::kWorks) WakeLost();
}

void ReplicaSet::WakeLost() {
  for (size_t i = 0; i < size(); ++i) {
    if (chooser_.ShouldLeave(i)) scheduler(i).AskSnapshot([](const SchedulerSnapshot&) {});
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
    Left(found->second);
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
  for (size_t i = 0; i < size(); ++i) {
    if (replicas_[i].is_stalled) chooser_.SetStalled(i, replicas_[i].is_stalled());
  }
  const ReplicaChooser::Choice choice = chooser_.Choose(*requests.front(), requests.size());
  for (const auto& request : requests) {
    Live& live = live_[request->id];
    live.replica = choice.replica;
    live.n_to_prefill = request == requests.front() ? choice.n_to_prefill : 0;
  }
  scheduler(choice.replica).Submit(std::move(requests));
}

void ReplicaSet::Cancel(SequenceId id) {
  const MutexLock lock(mutex_);
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  scheduler(found->second.replica).Cancel(id);
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
  Left(found->second);
  live_.erase(found);
  if (!live_.empty()) return;
  for (std::promise<void>& drain : drains_) drain.set_value();
  drains_.clear();
}

void ReplicaSet::Left(const Live& live) {
  chooser_.Prefilled(live.replica, live.n_to_prefill);
  chooser_.Left(live.replica);
  if (chooser_.n_sequences(live.replica) == 0) changed_.notify_all();
}

std::future<void> ReplicaSet::Drain() {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < size(); ++i) scheduler(i).Drain();
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
  const size_t n_replicas = size();
  {
    const MutexLock lock(gathered->mutex);
    gathered->sum.down = true;
    gathered->n_left = n_replicas;
  }
  for (size_t i = 0; i < n_replicas; ++i) {
    scheduler(i).AskSnapshot([gathered, done](const SchedulerSnapshot& one) {
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
