#include "router/dispatch/pipeline_keeper.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "common/status.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {
namespace {

constexpr auto kPauseBetweenAttempts = std::chrono::milliseconds(200);

}  // namespace

PipelineKeeper::PipelineKeeper(v1::Lease lease, PipelineKeeperHooks hooks)
    : hooks_(std::move(hooks)), lease_(std::move(lease)) {}

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
  std::shared_ptr<StageClient> client = hooks_.connect(lease);
  StageClientEvents events;
  events.on_result = [this](std::unique_ptr<v1::StepResult> result) {
    n_barren_losses_ = 0;
    events_.on_result(std::move(result));
  };
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

void PipelineKeeper::Send(std::unique_ptr<v1::StepPlan> plan) {
  std::shared_ptr<StageClient> client;
  {
    const MutexLock lock(mutex_);
    // The scheduler may not have heard of the loss yet.
    if (ended_ || plan->epoch() != lease_.epoch()) return;
    client = client_;
  }
  if (client != nullptr) client->Send(std::move(plan));
}

void PipelineKeeper::Run(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "keeper");
  while (true) {
    absl::Status loss;
    std::shared_ptr<StageClient> client;
    bool is_final = hooks_.restore == nullptr;
    uint64_t lost_epoch = 0;
    {
      MutexLock lock(mutex_);
      changed_.wait(lock,
                    [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !loss_.ok() || ended_; });
      if (ended_) return;
      loss = std::exchange(loss_, absl::OkStatus());
      is_final = is_final || ++n_barren_losses_ > kMostBarrenLosses;
      if (!is_final) {
        client = std::exchange(client_, nullptr);
        lost_epoch = lease_.epoch();
        recovering_ = std::string(loss.message());
      }
    }
    changed_.notify_all();
    if (is_final) return Lose(loss);
    const Clock::time_point lost_at = Clock::now();
    spdlog::error("{}; the pipeline waits for its replacement", std::string(loss.message()));
    events_.on_interrupted(loss);
    if (hooks_.on_change) hooks_.on_change(loss);
    client->Stop();
    client = nullptr;
    const absl::StatusOr<RestoredPipeline> restored = Recover(lost_epoch, stop);
    if (stop.stop_requested()) return;
    if (!restored.ok()) {
      return Lose(absl::UnavailableError(fmt::format("{}; it was not replaced: {}",
                                                     std::string(loss.message()),
                                                     std::string(restored.status().message()))));
    }
    const std::chrono::duration<double> took = Clock::now() - lost_at;
    {
      const MutexLock lock(mutex_);
      recovering_.clear();
      ++n_recoveries_;
      recovery_time_ += took;
    }
    const uint64_t epoch = restored->lease.epoch();
    spdlog::info("the pipeline works again after {:.2f} s, in epoch {}, {} its KV cache",
                 took.count(), epoch, restored->kv_kept ? "with" : "without");
    events_.on_resumed(epoch, restored->kv_kept);
    if (hooks_.on_change) hooks_.on_change(absl::OkStatus());
  }
}

absl::StatusOr<RestoredPipeline> PipelineKeeper::Recover(uint64_t lost_epoch,
                                                         const std::stop_token& stop) {
  absl::Status status;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    absl::StatusOr<RestoredPipeline> restored = hooks_.restore(lost_epoch, stop);
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

PipelineKeeper::Report PipelineKeeper::Read() const {
  const MutexLock lock(mutex_);
  return {.recovering = recovering_,
          .n_recoveries = n_recoveries_,
          .recovery_seconds = recovery_time_.count()};
}

}  // namespace stagecoach::router
