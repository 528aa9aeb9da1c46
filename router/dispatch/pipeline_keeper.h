// Keeps a pipeline alive: when a stage or its link is lost, joins the stages again in a new epoch,
// with a replacement at the address of the lost one. To the scheduler it is one StageClient that is
// interrupted and resumes.
//
// Within an epoch nothing is repaired: every stage ends it, whatever was lost. So the pipeline
// client of the epoch is closed, the workers are described, loaded and joined again (workers that
// still hold their layers only join), and a new client opens the streams.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/recoveries.h"
#include "router/dispatch/pipeline_setup.h"
#include "router/dispatch/recovery_times.h"
#include "router/dispatch/stage_loss.h"
#include "router/scheduler/stage_client.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

struct PipelineKeeperHooks {
  // A client for the streams of one epoch. Its events come from Start. `on_draining`: see
  // PipelineHooks.
  std::function<std::unique_ptr<StageClient>(const v1::Lease&,
                                             std::function<void(const absl::Status&)> on_draining)>
      connect;
  // Joins all stages again, after the loss of some in `lost_epoch`; blocks. No further attempt
  // follows after ABORTED (another router has a worker), DEADLINE_EXCEEDED (a worker does not
  // answer) and CANCELLED (the router stops). Null: every loss is final.
  std::function<absl::StatusOr<RestoredPipeline>(uint64_t lost_epoch, const std::stop_token&,
                                                 const EnterPhase&)>
      restore;
  // A stage's worker shuts down (the argument says which), and the router has had kHandOverGrace to
  // hear that it must stop itself. True: the place is handed over, as if the stage were lost.
  std::function<bool(const absl::Status&)> may_hand_over;
  // The client of an epoch is about to be closed because of this loss, or the pipeline works again
  // (OK). On the keeper's thread.
  std::function<void(const absl::Status&)> on_change;
  // The pipeline is lost for good. Called once, right after the events' on_down, on any thread.
  std::function<void(const absl::Status&)> on_lost;
};

// Thread-safe.
class PipelineKeeper final : public StageClient {
 public:
  using Clock = std::chrono::steady_clock;
  // Attempts to restore the pipeline after one loss. One that fails has usually met another loss.
  static constexpr int kAttempts = 5;
  // Losses in a row without a single result between them, after which the pipeline is lost for
  // good. Three are needed to find a request that kills a stage.
  static constexpr int kMostBarrenLosses = 10;
  // Recoveries that are remembered.
  static constexpr size_t kMostLatest = 8;

  // Programs that end together get their signals at almost the same time. A worker that shuts down
  // is not replaced if the router must stop, too.
  static constexpr auto kHandOverGrace = std::chrono::seconds(1);

  // `lease` holds all `n_stages` workers, which have joined.
  PipelineKeeper(v1::Lease lease, size_t n_stages, PipelineKeeperHooks hooks);
  ~PipelineKeeper() override;

  absl::Status Start(StageClientEvents events) override;
  void Send(std::unique_ptr<v1::StepPlan> plan) override;
  // Dropped while a lost stage is replaced: the loss has ended all fetches.
  void Fetch(uint64_t epoch, std::unique_ptr<v1::KvFetch> fetch) override;
  // A result was wrong: no replacement helps against that.
  void Fail(const absl::Status& reason) override;
  void Stop() override;

  // The lease of the pipeline that works now; waits while a lost stage is replaced. `epoch` is not
  // 0: a call to a stage has failed in this epoch, so wait for a later one. UNAVAILABLE if no loss
  // shows within kNoticeTime, or if the pipeline is lost for good.
  absl::StatusOr<v1::Lease> AwaitLease(uint64_t epoch = 0) const;
  static constexpr auto kNoticeTime = std::chrono::seconds(1);

  struct Report {
    std::string recovering;  // the loss that is being repaired; empty: the pipeline works
    // Losses after which the pipeline went on: per stage, by LossCause.
    std::vector<std::array<uint64_t, kLossCauses>> recoveries;
    // How long these took. All phases together last from the loss to the first plan that may be
    // sent.
    RecoveryTimes times{};
  };
  Report Read() const;
  // The latest recoveries, oldest first. The last one may be in progress. `replica` is not set.
  std::vector<Recovery> Latest() const;

 private:
  absl::Status Open(const v1::Lease& lease);
  // The client that works in this epoch. Null: none does.
  std::shared_ptr<StageClient> ClientOf(uint64_t epoch) const;
  void Run(const std::stop_token& stop);
  // Blocks until the client of the epoch is lost. Makes a stage that drains a loss of the client.
  // OK: the keeper ends.
  absl::Status AwaitLoss();
  // Returns once the pipeline works again. An error is final.
  absl::StatusOr<RestoredPipeline> Recover(uint64_t lost_epoch, const std::stop_token& stop,
                                           const EnterPhase& enter);
  void Lose(const absl::Status& reason);
  void NoteLoss(const absl::Status& loss);
  void NotePhase(RecoveryPhase phase);

  const PipelineKeeperHooks hooks_;
  StageClientEvents events_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  v1::Lease lease_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<StageClient> client_ ABSL_GUARDED_BY(mutex_);  // null while recovering
  absl::Status loss_ ABSL_GUARDED_BY(mutex_);                    // of client_, not handled yet
  absl::Status draining_ ABSL_GUARDED_BY(mutex_);                // a stage of client_; OK: none
  std::string recovering_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> n_barren_losses_{0};         // reset by every result, so without the lock
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // lost for good, or stopping
  std::vector<std::array<uint64_t, kLossCauses>> recoveries_ ABSL_GUARDED_BY(mutex_);
  RecoveryTimes times_ ABSL_GUARDED_BY(mutex_){};
  std::deque<Recovery> latest_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point last_began_ ABSL_GUARDED_BY(mutex_);  // of the last of them
  std::jthread thread_;                                   // last: uses all above
};

}  // namespace stagecoach::router
