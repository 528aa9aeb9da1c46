#include "router/dispatch/pipeline_keeper.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {
namespace {

constexpr auto kPauseBetweenAttempts = std::chrono::milliseconds(200);

// Measures the phases of one recovery, which begins with kWait.
class PhaseClock {
 public:
  void Enter(RecoveryPhase phase) {
    const Clock::time_point now = Clock::now();
    times_[static_cast<size_t>(phase_)] += now - since_;
    phase_ = phase;
    since_ = now;
  }
  RecoveryTimes Read() {
    Enter(phase_);
    return times_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  RecoveryTimes times_{};
  RecoveryPhase phase_ = RecoveryPhase::kWait;
  Clock::time_point since_ = Clock::now();
};

// "0.28 s (wait 0.20, load 0.05, join 0.03)"
std::string Describe(const RecoveryTimes& times) {
  double sum = 0;
  std::vector<std::string> parts;
  for (size_t i = 0; i < times.size(); ++i) {
    sum += times[i].count();
    parts.push_back(fmt::format("{} {:.2f}", kRecoveryPhases[i], times[i].count()));
  }
  return fmt::format("{:.2f} s ({})", sum, fmt::join(parts, ", "));
}

}  // namespace

PipelineKeeper::PipelineKeeper(v1::Lease lease, size_t n_stages, PipelineKeeperHooks hooks)
    : hooks_(std::move(hooks)), lease_(std::move(lease)), recoveries_(n_stages) {}

PipelineKeeper::~PipelineKeeper() { Stop(); }

absl::Status PipelineKeeper::Start(StageClientEvents events) {
  events_ = std::move(events);
  v1::Lease lease;
  {
    const MutexLock lock(mutex_);
    lease = lease_;
  }
  SC_RETURN_IF_ERROR(Open(lease));
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  return absl::OkStatus();
}

absl::Status PipelineKeeper::Open(const v1::Lease& lease) {
  {
    const MutexLock lock(mutex_);
    draining_ = absl::OkStatus();  // of the client before, which has stopped
  }
  std::shared_ptr<StageClient> client = hooks_.connect(lease, [this](const absl::Status& draining) {
    {
      const MutexLock lock(mutex_);
      draining_ = draining;
    }
    changed_.notify_all();
  });
  StageClientEvents events;
  events.on_result = [this](std::unique_ptr<v1::StepResult> result) {
    n_barren_losses_ = 0;
    events_.on_result(std::move(result));
  };
  events.on_fetched = events_.on_fetched;
  events.on_down = [this](absl::Status reason) {
    {
      const MutexLock lock(mutex_);
      loss_ = std::move(reason);
    }
    changed_.notify_all();
  };
  SC_RETURN_IF_ERROR(client->Start(std::move(events)));
  {
    const MutexLock lock(mutex_);
    client_ = std::move(client);
    lease_ = lease;
  }
  changed_.notify_all();
  return absl::OkStatus();
}

std::shared_ptr<StageClient> PipelineKeeper::ClientOf(uint64_t epoch) const {
  const MutexLock lock(mutex_);
  return ended_ || epoch != lease_.epoch() ? nullptr : client_;
}

// The scheduler may not have heard of a loss yet.
void PipelineKeeper::Send(std::unique_ptr<v1::StepPlan> plan) {
  const std::shared_ptr<StageClient> client = ClientOf(plan->epoch());
  if (client != nullptr) client->Send(std::move(plan));
}

void PipelineKeeper::Fetch(uint64_t epoch, std::unique_ptr<v1::KvFetch> fetch) {
  const std::shared_ptr<StageClient> client = ClientOf(epoch);
  if (client != nullptr) client->Fetch(epoch, std::move(fetch));
}

absl::Status PipelineKeeper::AwaitLoss() {
  MutexLock lock(mutex_);
  const auto is_over = [&]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !loss_.ok() || ended_; };
  while (true) {
    changed_.wait(
        lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_over() || !draining_.ok(); });
    if (is_over() || changed_.wait_for(lock, kHandOverGrace, is_over)) break;
    const absl::Status draining = std::exchange(draining_, absl::OkStatus());
    const std::shared_ptr<StageClient> client = client_;
    lock.unlock();
    if (hooks_.may_hand_over && hooks_.may_hand_over(draining)) client->Fail(draining);
    lock.lock();
  }
  return ended_ ? absl::OkStatus() : std::exchange(loss_, absl::OkStatus());
}

void PipelineKeeper::Run(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "keeper");
  while (true) {
    const absl::Status loss = AwaitLoss();
    if (loss.ok()) return;
    const std::optional<StageLoss> lost = LossOf(loss);
    const bool planned = lost && lost->cause == LossCause::kHandedOver;
    const bool barren = !planned && ++n_barren_losses_ > kMostBarrenLosses;
    if (hooks_.restore == nullptr || barren) return Lose(loss);
    std::shared_ptr<StageClient> client;
    uint64_t lost_epoch = 0;
    {
      const MutexLock lock(mutex_);
      client = std::exchange(client_, nullptr);
      lost_epoch = lease_.epoch();
      recovering_ = std::string(loss.message());
    }
    NoteLoss(loss);
    changed_.notify_all();
    PhaseClock clock;
    spdlog::log(planned ? spdlog::level::info : spdlog::level::err,
                "{}; the pipeline waits for its replacement", std::string(loss.message()));
    events_.on_interrupted(loss);
    if (hooks_.on_change) hooks_.on_change(loss);
    client->Stop();
    client = nullptr;
    const absl::StatusOr<RestoredPipeline> restored =
        Recover(lost_epoch, stop, [this, &clock](RecoveryPhase phase) {
          clock.Enter(phase);
          NotePhase(phase);
        });
    if (stop.stop_requested()) return;
    if (!restored.ok()) {
      return Lose(absl::UnavailableError(fmt::format("{}; it was not replaced: {}",
                                                     std::string(loss.message()),
                                                     std::string(restored.status().message()))));
    }
    const RecoveryTimes took = clock.Read();
    {
      const MutexLock lock(mutex_);
      recovering_.clear();
      if (lost) ++recoveries_.at(lost->stage).at(static_cast<size_t>(lost->cause));
      for (size_t i = 0; i < took.size(); ++i) times_[i] += took[i];
      Recovery& latest = latest_.back();
      latest.lasted = std::accumulate(took.begin(), took.end(), latest.lasted);
      latest.phase.clear();
      latest.kv_kept = restored->kv_kept;
    }
    const uint64_t epoch = restored->lease.epoch();
    spdlog::info("the pipeline works again after {} in epoch {}, {} its KV cache", Describe(took),
                 epoch, restored->kv_kept ? "with" : "without");
    events_.on_resumed(epoch, restored->kv_kept);
    if (hooks_.on_change) hooks_.on_change(absl::OkStatus());
  }
}

absl::StatusOr<RestoredPipeline> PipelineKeeper::Recover(uint64_t lost_epoch,
                                                         const std::stop_token& stop,
                                                         const EnterPhase& enter) {
  absl::Status status;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    enter(RecoveryPhase::kWait);
    absl::StatusOr<RestoredPipeline> restored = hooks_.restore(lost_epoch, stop, enter);
    status = restored.ok() ? Open(restored->lease) : restored.status();
    if (status.ok()) return restored;
    if (stop.stop_requested() || absl::IsAborted(status) || absl::IsDeadlineExceeded(status) ||
        absl::IsCancelled(status)) {
      return status;
    }
    spdlog::warn("attempt {} to restore the pipeline failed: {}", attempt,
                 std::string(status.message()));
    WaitForStop(stop, kPauseBetweenAttempts);
  }
  return status;
}

void PipelineKeeper::Lose(const absl::Status& reason) {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(ended_, true)) return;
    recovering_ = std::string(reason.message());
  }
  changed_.notify_all();
  events_.on_down(reason);
  if (hooks_.on_lost) hooks_.on_lost(reason);
}

void PipelineKeeper::Fail(const absl::Status& reason) { Lose(reason); }

void PipelineKeeper::Stop() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_ = {};                         // requests its stop and joins
  std::shared_ptr<StageClient> client;  // the thread may have opened another one meanwhile
  {
    const MutexLock lock(mutex_);
    client = client_;
  }
  if (client != nullptr) client->Stop();
}

absl::StatusOr<v1::Lease> PipelineKeeper::AwaitLease(uint64_t epoch) const {
  MutexLock lock(mutex_);
  if (epoch > 0) {
    changed_.wait_for(lock, kNoticeTime, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return ended_ || client_ == nullptr || lease_.epoch() > epoch;
    });
  }
  changed_.wait(
      lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ || client_ != nullptr; });
  if (!ended_ && lease_.epoch() > epoch) return lease_;
  return absl::UnavailableError(ended_ ? "the pipeline is lost" : "the pipeline did not change");
}

void PipelineKeeper::NoteLoss(const absl::Status& loss) {
  const std::optional<StageLoss> lost = LossOf(loss);
  Recovery recovery{.reason = std::string(loss.message()),
                    .began = std::chrono::system_clock::now(),
                    .phase = std::string(kRecoveryPhases.front())};
  if (lost) recovery.stage = lost->stage;
  const MutexLock lock(mutex_);
  last_began_ = Clock::now();
  latest_.push_back(std::move(recovery));
  if (latest_.size() > kMostLatest) latest_.pop_front();
}

void PipelineKeeper::NotePhase(RecoveryPhase phase) {
  const MutexLock lock(mutex_);
  latest_.back().phase = kRecoveryPhases[static_cast<size_t>(phase)];
}

std::vector<Recovery> PipelineKeeper::Latest() const {
  const MutexLock lock(mutex_);
  std::vector<Recovery> latest(latest_.begin(), latest_.end());
  if (!latest.empty() && !latest.back().phase.empty()) {
    latest.back().lasted = Clock::now() - last_began_;
  }
  return latest;
}

PipelineKeeper::Report PipelineKeeper::Read() const {
  const MutexLock lock(mutex_);
  return {.recovering = recovering_, .recoveries = recoveries_, .times = times_};
}

}  // namespace stagecoach::router
