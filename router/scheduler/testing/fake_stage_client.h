// A StageClient over a StrictStage in this process. Results can be held back and released one by
// one, or be late at random.
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

// Thread-safe. Callbacks come from a thread of its own.
class FakeStageClient final : public StageClient {
 public:
  struct Options {
    bool hold_results = false;  // until Release or ReleaseAll
    int32_t max_delay_us = 0;   // results are late by up to this, at random
    uint64_t delay_seed = 1;
    absl::Status start_status;  // what Start returns
    uint64_t wrong_step = 0;    // whose result says that it is another's
  };

  explicit FakeStageClient(const SchedulerConfig& config);
  FakeStageClient(const SchedulerConfig& config, const Options& options);
  ~FakeStageClient() override;

  absl::Status Start(StageClientEvents events) override;
  void Send(std::unique_ptr<v1::StepPlan> plan) override;
  void Fail(const absl::Status& reason) override { Lose(reason); }
  void Stop() override;

  // Lets n more results out, and returns once they are: what comes to run later gets none of them.
  void Release(uint64_t n_results);
  // Holds no result from now on.
  void ReleaseAll();
  // The pipeline is lost: results not yet delivered never come, on_down is called.
  void Lose(absl::Status reason);

  std::vector<v1::StepPlan> plans() const;
  // What was wrong with plans, in words; empty when nothing was.
  std::vector<std::string> errors() const;
  uint64_t max_in_flight() const;
  // By Lose, or Fail.
  bool is_lost() const;

 private:
  void Deliver();

  const SchedulerConfig config_;
  const Options options_;
  StageClientEvents events_;
  std::thread thread_;

  mutable Mutex mutex_;
  CondVar changed_;
  StrictStage stage_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::StepPlan> plans_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<v1::StepResult>> results_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> errors_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  uint64_t n_released_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t n_delivered_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t max_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status loss_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::router
