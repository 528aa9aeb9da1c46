// A StageClient over a StrictStage in this process. It can hold results and release them one by
// one, or delay them randomly.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "router/scheduler/stage_client.h"
#include "router/scheduler/testing/strict_stage.h"

namespace stagecoach::router {

// Thread-safe. Callbacks run on its own thread.
class FakeStageClient final : public StageClient {
 public:
  struct Options {
    bool hold_results = false;  // until Release or ReleaseAll
    int32_t max_delay_us = 0;   // results are delayed by a random time up to this
    uint64_t delay_seed = 1;
    absl::Status start_status;  // the status that Start returns
    // The result of this step carries the number of the next one; 0: none.
    uint64_t wrong_step = 0;
  };

  explicit FakeStageClient(const SchedulerConfig& config);
  FakeStageClient(const SchedulerConfig& config, const Options& options);
  ~FakeStageClient() override;

  absl::Status Start(StageClientEvents events) override;
  void Send(std::unique_ptr<v1::StepPlan> plan) override;
  // From a store of its own. Answers come like results, but are never held.
  void Fetch(uint64_t epoch, std::unique_ptr<v1::KvFetch> fetch) override;
  void Fail(const absl::Status& reason) override { Lose(reason); }
  void Stop() override;

  // Releases n more results, and returns after their delivery. Steps that are planned later do not
  // use up this count.
  void Release(uint64_t n_results);
  // Stops holding results.
  void ReleaseAll();
  // The pipeline is lost: undelivered results never come. Returns after the call of on_down.
  void Lose(absl::Status reason);
  // A stage is lost: undelivered results never come. Returns after the call of on_interrupted. The
  // replacement is there with Restore, which begins the next epoch; every second time, the stages
  // keep the KV cache.
  void Break(const absl::Status& reason);
  void Restore();
  // Both, without waiting.
  void Interrupt(const absl::Status& reason);

  std::vector<v1::StepPlan> plans() const;
  // Descriptions of errors in plans; empty if there were none.
  std::vector<std::string> errors() const;
  uint64_t max_in_flight() const;
  // Whether Lose or Fail was called.
  bool is_lost() const;

 private:
  void Deliver();
  void AwaitTold(MutexLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SchedulerConfig config_;
  const Options options_;
  StageClientEvents events_;
  std::thread thread_;

  mutable Mutex mutex_;
  CondVar changed_;
  FakeKvStore store_ ABSL_GUARDED_BY(mutex_);
  StrictStage stage_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_);
  bool kv_kept_ ABSL_GUARDED_BY(mutex_) = false;  // in the last interruption
  std::vector<v1::StepPlan> plans_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<v1::StepResult>> results_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::KvFetched> fetched_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> errors_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  uint64_t n_released_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t n_delivered_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t max_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status loss_ ABSL_GUARDED_BY(mutex_);
  absl::Status interruption_ ABSL_GUARDED_BY(mutex_);  // not OK: to be carried out
  bool restoring_ ABSL_GUARDED_BY(mutex_) = false;     // an epoch is to begin
  bool telling_ ABSL_GUARDED_BY(mutex_) = false;       // on_down or on_interrupted is to be called
};

}  // namespace stagecoach::router
