// One of the pipelines that the router serves: its workers as they were loaded, what watches them,
// and what replaces those that are lost.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/flags/serve_flags.h"
#include "common/flight/flight_recorder.h"
#include "common/metrics/stage_collector.h"
#include "common/model/model_spec.h"
#include "common/recoveries.h"
#include "router/dispatch/grammar_client.h"
#include "router/dispatch/pipeline_keeper.h"
#include "router/dispatch/pipeline_setup.h"
#include "router/dispatch/pipeline_watch.h"
#include "router/dispatch/recovery_metrics.h"
#include "router/dispatch/stage_stats.h"
#include "router/dispatch/stall_metrics.h"
#include "router/frontend/router_metrics.h"
#include "router/scheduler/scheduler.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

class KvEventPublisher;
class LauncherLines;
class StallSwitch;
class StopRequest;

// Thread-safe, but for Export, Detach and Release.
class ServedPipeline {
 public:
  // All of it outlives the pipeline.
  struct Context {
    size_t replica = 0;  // number among the router's pipelines
    const ModelSpec* spec = nullptr;
    const ServeFlags* flags = nullptr;
    FlightRecorder* flight = nullptr;  // may be null
    StopRequest* stop = nullptr;
    StallSwitch* stall_switch = nullptr;
    LauncherLines* launcher_lines = nullptr;
    KvEventPublisher* kv_events = nullptr;  // may be null
    std::string model_name;
    // The pipeline is lost for good. Called once, on any thread.
    std::function<void(const absl::Status&)> on_gone;
  };

  // `pipeline`: the result of SetUpPipeline with these options.
  ServedPipeline(Context context, PipelineOptions options, Pipeline pipeline);
  ~ServedPipeline();
  ServedPipeline(const ServedPipeline&) = delete;
  ServedPipeline& operator=(const ServedPipeline&) = delete;

  const Pipeline& pipeline() const { return pipeline_; }
  SchedulerConfig MakeSchedulerConfig() const;
  StageClient* client() { return &keeper_; }

  const std::vector<std::string>& addresses() const { return options_.addresses; }

  // Its sequences go on at others at once: it is lost for good, on purpose.
  void Leave();
  // Leaves it, closes the streams to its workers, and tells the launcher that they are not needed.
  // Call it once, when no sequence is left. Its client may be stopped again afterwards.
  void Release();
  // Leave was called. The pipeline is then not to be shown any more.
  bool is_left() const { return is_left_; }

  // Why it serves nothing now, in words; empty: it serves.
  std::string Trouble() const;
  bool is_stalled() const { return is_stalled_; }
  // Per stage, a description of its stall; empty: not stalled.
  std::vector<std::string> StalledStages() const { return watch_.Read().stalled; }
  std::vector<v1::StageStatus> StageStatuses() const;
  std::vector<Recovery> LatestRecoveries() const;
  const StageStats& stage_stats() const { return stage_stats_; }

  // Prepares grammars on the last stage. While that is being replaced, it waits, or fails with
  // UNAVAILABLE if not `patient`.
  const PrepareGrammar& grammars(bool patient) const {
    return patient ? patient_grammars_ : grammars_;
  }

  // The metrics of the pipeline and of its scheduler, which both outlive Detach.
  std::vector<std::shared_ptr<prometheus::Collectable>> Export(Scheduler* scheduler,
                                                               const std::string& model_name);
  void Detach();

 private:
  bool recovers() const { return context_.flags->recovery_limit.count() > 0; }
  PipelineKeeperHooks KeeperHooks();
  std::unique_ptr<StageClient> Connect(const v1::Lease& lease,
                                       std::function<void(const absl::Status&)> on_draining);
  void OnStall(const std::vector<std::string>& stalled);
  void OnChange(const absl::Status& loss);
  bool MayHandOver(const absl::Status& draining);
  PrepareGrammar MakeGrammars(bool patient) const;

  const Context context_;
  const PipelineOptions options_;
  const Pipeline pipeline_;
  const StageStats stage_stats_;
  std::atomic<bool> is_stalled_{false};
  std::atomic<bool> is_left_{false};
  // Used on the keeper's thread, which begins after the first connect.
  std::optional<FlightRecorder::Clock::time_point> lost_at_;
  PipelineWatch watch_;
  PipelineKeeper keeper_;
  const PrepareGrammar grammars_;
  const PrepareGrammar patient_grammars_;
  std::shared_ptr<SchedulerCollector> scheduler_metrics_;
  std::shared_ptr<StageCollector> stage_metrics_;
  std::shared_ptr<StallCollector> stall_metrics_;
  std::shared_ptr<RecoveryCollector> recovery_metrics_;
};

}  // namespace stagecoach::router
