#include "router/served_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "router/dispatch/answer_watch.h"
#include "router/dispatch/pipeline_client.h"
#include "router/kv_events/publisher.h"
#include "router/launcher_lines.h"
#include "router/stall_switch.h"
#include "router/stop_request.h"

namespace stagecoach::router {
namespace {

// The StepCost of each stage starts with the time of the largest step, measured during the load.
std::vector<StallWatch::Stage> WatchedStages(const Pipeline& pipeline) {
  const auto n_rows = static_cast<uint64_t>(pipeline.config.max_batched_tokens());
  const StepSize largest{.n_rows = n_rows,
                         .n_pairs = n_rows,
                         .n_logits = static_cast<uint64_t>(pipeline.config.max_sequences())};
  std::vector<StallWatch::Stage> stages;
  for (size_t i = 0; i < pipeline.stages.size(); ++i) {
    const PipelineStage& stage = pipeline.stages[i];
    stages.push_back({.name = fmt::format("stage {} ({})", i, stage.address),
                      .cost = StepCost(largest, std::chrono::duration_cast<StepCost::Duration>(
                                                    stage.largest_step))});
  }
  return stages;
}

// The addresses of the stages for which `stalled` has a text.
std::vector<std::string> Stalled(const std::vector<std::string>& addresses,
                                 const std::vector<std::string>& stalled) {
  std::vector<std::string> found;
  for (size_t i = 0; i < stalled.size(); ++i) {
    if (!stalled[i].empty()) found.push_back(addresses[i]);
  }
  return found;
}

}  // namespace

ServedPipeline::ServedPipeline(Context context, PipelineOptions options, Pipeline pipeline)
    : context_(std::move(context)),
      options_(std::move(options)),
      pipeline_(std::move(pipeline)),
      stage_stats_(MakeStageStats(options_.addresses, std::chrono::seconds(2), options_.access)),
      watch_(WatchedStages(pipeline_), {.end = context_.flags->stall_limit}),
      keeper_(pipeline_.lease, pipeline_.stages.size(), KeeperHooks()),
      grammars_(MakeGrammars(/*patient=*/false)),
      patient_grammars_(MakeGrammars(/*patient=*/true)) {
  context_.stall_switch->SetLost(context_.replica, false);
}

// One that never began to serve would count as one that works.
ServedPipeline::~ServedPipeline() { context_.stall_switch->SetLost(context_.replica, true); }

void ServedPipeline::Leave() {
  is_left_ = true;
  keeper_.Fail(absl::CancelledError(fmt::format("replica {} is drained", context_.replica)));
}

void ServedPipeline::Release() {
  Leave();
  keeper_.Stop();
  // A loss may have been repaired just before.
  context_.stall_switch->SetLost(context_.replica, true);
  Detach();
  context_.launcher_lines->SayDrained(options_.addresses);
}

SchedulerConfig ServedPipeline::MakeSchedulerConfig() const {
  const ServeFlags& flags = *context_.flags;
  SchedulerConfig config{flags.scheduler};
  // More microbatches than stages would only wait for one another.
  const size_t n_stages = pipeline_.stages.size();
  config.n_microbatches = static_cast<int32_t>(
      flags.microbatches == 0 ? n_stages : std::min<size_t>(flags.microbatches, n_stages));
  config.max_sequences = pipeline_.kv.max_sequences;
  config.is_recurrent = context_.spec->recurrent.has_value();
  config.n_states = pipeline_.kv.n_states;
  config.max_batched_tokens = pipeline_.config.max_batched_tokens();
  config.max_prefill_chunk = pipeline_.config.max_prefill_chunk();
  config.break_even_rows = pipeline_.on_gpus ? kGpuBreakEvenRows : kCpuBreakEvenRows;
  config.max_model_len = pipeline_.kv.max_model_len;
  for (size_t g = 0; g < context_.spec->kv_groups.size(); ++g) {
    config.kv_groups.push_back(
        {.window = context_.spec->kv_groups[g].window, .n_blocks = pipeline_.kv.n_blocks[g]});
  }
  config.epoch = pipeline_.lease.epoch();
  config.kv_scope = pipeline_.kv_scope;
  if (context_.kv_events != nullptr) {
    config.kv_events = {.sink = context_.kv_events->SinkOf(context_.replica),
                        .scope = context_.model_name};
  }
  return config;
}

std::unique_ptr<StageClient> ServedPipeline::Connect(
    const v1::Lease& lease, std::function<void(const absl::Status&)> on_draining) {
  return MakePipelineClient(options_.addresses, lease,
                            {.on_draining = std::move(on_draining),
                             .flight = context_.flight,
                             .lost_at = lost_at_,
                             .vocab_size = context_.spec->vocab_size,
                             .watch = &watch_,
                             .on_stall = [this](const auto& stalled) { OnStall(stalled); }},
                            options_.access);
}

void ServedPipeline::OnStall(const std::vector<std::string>& stalled) {
  const std::vector<std::string> addresses = Stalled(options_.addresses, stalled);
  is_stalled_ = !addresses.empty();
  context_.stall_switch->SetStalled(context_.replica, !addresses.empty());
  if (recovers()) context_.launcher_lines->SetStalled(context_.replica, addresses);
}

void ServedPipeline::OnChange(const absl::Status& loss) {
  if (!loss.ok()) {
    lost_at_ = FlightRecorder::Clock::now();
    const std::vector<std::string> addresses = Stalled(options_.addresses, StalledStages());
    if (!addresses.empty()) context_.launcher_lines->AskToReplace(addresses);
  } else {
    context_.launcher_lines->SayRestored();
  }
  context_.stall_switch->SetLost(context_.replica, !loss.ok());
}

bool ServedPipeline::MayHandOver(const absl::Status& draining) {
  if (recovers() && !context_.stop->requested()) return true;
  context_.stop->StageDrains(draining);
  return false;
}

PipelineKeeperHooks ServedPipeline::KeeperHooks() {
  PipelineKeeperHooks hooks{
      .connect =
          [this](const v1::Lease& lease, std::function<void(const absl::Status&)> on_draining) {
            return Connect(lease, std::move(on_draining));
          },
      .may_hand_over = [this](const absl::Status& draining) { return MayHandOver(draining); },
      .on_change = [this](const absl::Status& loss) { OnChange(loss); },
      .on_lost =
          [this](const absl::Status& loss) {
            context_.stall_switch->SetLost(context_.replica, true);
            if (!is_left_) context_.on_gone(loss);
          }};
  if (!recovers()) return hooks;
  hooks.restore = [this](uint64_t lost_epoch, const std::stop_token& stopping,
                         const EnterPhase& enter) -> absl::StatusOr<RestoredPipeline> {
    // Its workers are about to end, too.
    if (context_.stop->requested()) return absl::CancelledError("the router is shutting down");
    // One that is stopped or hangs now would hold up the recovery.
    const AnswerWatch watch(options_.addresses, options_.access, [this](const auto& silent) {
      context_.launcher_lines->SetStalled(context_.replica, silent);
    });
    return RestorePipeline(*context_.spec, options_, pipeline_, lost_epoch,
                           context_.flags->recovery_limit, stopping, enter);
  };
  return hooks;
}

std::string ServedPipeline::Trouble() const {
  std::string recovering = keeper_.Read().recovering;
  if (!recovering.empty()) return recovering;
  const std::vector<std::string> stalled = StalledStages();
  for (size_t i = 0; i < stalled.size(); ++i) {
    if (!stalled[i].empty()) return fmt::format("stage {} {}", i, stalled[i]);
  }
  return "";
}

std::vector<v1::StageStatus> ServedPipeline::StageStatuses() const {
  const std::vector<std::string> stalled = StalledStages();
  std::vector<v1::StageStatus> statuses;
  for (const PipelineStage& stage : pipeline_.stages) {
    v1::StageStatus& status = statuses.emplace_back();
    status.set_replica(static_cast<uint32_t>(context_.replica));
    status.set_address(stage.address);
    status.set_first_layer(stage.layers.first);
    status.set_n_layers(stage.layers.count);
    status.set_device(stage.device);
    status.set_stalled(stalled[statuses.size() - 1]);
    status.mutable_weights()->insert(stage.weights.begin(), stage.weights.end());
  }
  return statuses;
}

std::vector<Recovery> ServedPipeline::LatestRecoveries() const {
  std::vector<Recovery> latest = keeper_.Latest();
  for (Recovery& recovery : latest) recovery.replica = context_.replica;
  return latest;
}

PrepareGrammar ServedPipeline::MakeGrammars(bool patient) const {
  return MakeGrammarClient(
      options_.addresses.back(),
      [this, patient](uint64_t failed_epoch) -> absl::StatusOr<v1::Lease> {
        if (!patient && (failed_epoch > 0 || !keeper_.Read().recovering.empty())) {
          return absl::UnavailableError("the pipeline is lost for now");
        }
        return keeper_.AwaitLease(failed_epoch);
      },
      options_.access);
}

std::vector<std::shared_ptr<prometheus::Collectable>> ServedPipeline::Export(
    Scheduler* scheduler, const std::string& model_name) {
  const std::string engine = EngineOf(context_.replica);
  const std::vector<std::pair<std::string, std::string>> labels = {{"model_name", model_name},
                                                                   {"engine", engine}};
  scheduler_metrics_ = std::make_shared<SchedulerCollector>(scheduler, model_name, engine);
  stage_metrics_ = std::make_shared<StageCollector>(stage_stats_, labels);
  stall_metrics_ = std::make_shared<StallCollector>([this] { return watch_.Read(); }, labels);
  recovery_metrics_ =
      std::make_shared<RecoveryCollector>([this] { return keeper_.Read(); }, labels);
  return {scheduler_metrics_, stage_metrics_, stall_metrics_, recovery_metrics_};
}

void ServedPipeline::Detach() {
  scheduler_metrics_->Detach();
  stage_metrics_->Detach();
  stall_metrics_->Detach();
  recovery_metrics_->Detach();
}

}  // namespace stagecoach::router
