// stagecoach-router: sets up the pipeline of a model and serves it.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "common/config/load_config.h"
#include "common/flags/internal_flags.h"
#include "common/flags/serve_flags.h"
#include "common/flight/flight_recorder.h"
#include "common/log.h"
#include "common/log_writer.h"
#include "common/metrics/metrics_server.h"
#include "common/metrics/stage_collector.h"
#include "common/process.h"
#include "common/rpc/internal_access.h"
#include "common/status.h"
#include "common/trace/otlp_exporter.h"
#include "router/access/access.h"
#include "router/dispatch/grammar_client.h"
#include "router/dispatch/pipeline_client.h"
#include "router/dispatch/pipeline_keeper.h"
#include "router/dispatch/pipeline_setup.h"
#include "router/dispatch/pipeline_watch.h"
#include "router/dispatch/recovery_metrics.h"
#include "router/dispatch/stage_stats.h"
#include "router/dispatch/stall_metrics.h"
#include "router/frontend/frontend.h"
#include "router/frontend/grpc_server.h"
#include "router/frontend/http/http_server.h"
#include "router/frontend/throughput_log.h"
#include "router/scheduler/scheduler.h"
#include "router/stall_switch.h"
#include "router/stop_request.h"
#include "router/text/grammar_params.h"

namespace stagecoach::router {
namespace {

// Time for streams whose sequences have ended to write their last messages.
constexpr auto kWriteGrace = std::chrono::seconds(10);

struct Flags {
  std::string model;
  std::vector<std::string> stages;
  InternalFlags internal;
  std::string log_level = "info";
  pid_t parent = 0;  // 0: do not exit with a parent process
  ServeFlags serve;
};

std::string ServedName(const Flags& flags) {
  if (!flags.serve.served_name.empty()) return flags.serve.served_name;
  const std::filesystem::path given = std::filesystem::weakly_canonical(flags.model);
  if (std::filesystem::is_directory(given)) return given.filename().string();
  if (std::filesystem::is_regular_file(given)) return given.stem().string();
  // The name `org/name` in the Hugging Face cache is better than the hash of its snapshot.
  return flags.model;
}

SchedulerConfig MakeSchedulerConfig(const ServeFlags& serve, const ModelSpec& spec,
                                    const Pipeline& pipeline) {
  SchedulerConfig config{serve.scheduler};
  // More microbatches than stages would only wait for one another.
  const size_t n_stages = pipeline.stages.size();
  config.n_microbatches = static_cast<int32_t>(
      serve.microbatches == 0 ? n_stages : std::min<size_t>(serve.microbatches, n_stages));
  config.max_sequences = pipeline.config.max_sequences();
  config.max_batched_tokens = pipeline.config.max_batched_tokens();
  config.max_prefill_chunk = pipeline.config.max_prefill_chunk();
  config.break_even_rows = pipeline.on_gpus ? kGpuBreakEvenRows : kCpuBreakEvenRows;
  config.max_model_len = pipeline.kv.max_model_len;
  for (size_t g = 0; g < spec.kv_groups.size(); ++g) {
    config.kv_groups.push_back(
        {.window = spec.kv_groups[g].window, .n_blocks = pipeline.kv.n_blocks[g]});
  }
  config.epoch = pipeline.lease.epoch();
  return config;
}

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

FrontendOptions MakeFrontendOptions(const ServeFlags& serve, const Pipeline& pipeline,
                                    SpanSink* spans, const PipelineWatch* watch,
                                    const PipelineKeeper* keeper, const ThreadWatch* thread_watch) {
  FrontendOptions options;
  options.stalled = [watch] { return watch->Read().stalled; };
  options.router_stalled = [keeper, thread_watch] {
    const std::string recovering = keeper->Read().recovering;
    return recovering.empty() ? thread_watch->Stalled() : recovering;
  };
  options.max_prompts = static_cast<size_t>(serve.scheduler.max_waiting);
  options.max_choices = options.max_prompts + pipeline.config.max_sequences();
  options.request_memory_bytes = serve.request_memory_bytes;
  options.streams = serve.streams;
  options.traces = {.spans = spans, .sample_ratio = serve.trace_sample_ratio};
  return options;
}

std::vector<v1::StageStatus> StageStatuses(const Pipeline& pipeline) {
  std::vector<v1::StageStatus> statuses;
  for (const PipelineStage& stage : pipeline.stages) {
    v1::StageStatus& status = statuses.emplace_back();
    status.set_address(stage.address);
    status.set_first_layer(stage.layers.first);
    status.set_n_layers(stage.layers.count);
    status.set_device(stage.device);
  }
  return statuses;
}

// Asks whoever started this router to replace the stages that are stalled: they would never answer.
void AskToReplace(const std::vector<std::string>& addresses,
                  const std::vector<std::string>& stalled) {
  for (size_t i = 0; i < stalled.size(); ++i) {
    if (!stalled[i].empty()) fmt::print("replace {}\n", addresses[i]);
  }
  std::fflush(stdout);
}

// Tells whoever started this router that the pipeline works again.
void SayRestored() {
  fmt::print("restored\n");
  std::fflush(stdout);
}

// Closed connections tell the clients: an error message would need the stalled thread, and so would
// an orderly shutdown.
void EndForThread(const std::string& why) {
  LogFatal(why + ", and does not get on");
  std::_Exit(1);
}

// Returns OK after an orderly shutdown, or else the reason why serving did not begin or could not
// continue.
absl::Status Serve(const Flags& flags, StopRequest& stop) {
  // Lives until the process ends, because a signal handler may run that late.
  static FlightRecorder* const flight = new FlightRecorder(FlightRole::kRouter);
  SC_RETURN_IF_ERROR(
      WriteFlightOnSignals(flight, flags.serve.observation.flight_recorder, "stagecoach-router"));
  // Check flags before the load, which may take minutes.
  SC_RETURN_IF_ERROR(CheckServeFlags(flags.serve));
  SC_ASSIGN_OR_RETURN(const std::shared_ptr<Access> access, Access::Read(flags.serve.access));
  SC_ASSIGN_OR_RETURN(const InternalAccess internal, ReadInternalAccess(flags.internal));
  SC_RETURN_IF_ERROR(CheckAddresses(flags.serve));
  SC_ASSIGN_OR_RETURN(const std::string model_dir, ResolveModelDir(flags.model));
  SC_ASSIGN_OR_RETURN(ServedModel model,
                      ReadServedModel(model_dir, ServedName(flags), flags.serve.chat_template));
  v1::TokenTable token_table;
  if (model.grammars.ok()) {
    token_table = ToProto(model.token_table);
  } else {
    spdlog::warn("requests with a grammar will be refused: {}",
                 std::string(model.grammars.status().message()));
  }
  const ModelSpec spec = model.spec;
  const PipelineOptions pipeline_options{.model_dir = model_dir,
                                         .addresses = flags.stages,
                                         .access = internal,
                                         .flags = flags.serve.load,
                                         .token_table = std::move(token_table),
                                         .terminal = isatty(STDERR_FILENO) == 1};
  SC_ASSIGN_OR_RETURN(const Pipeline pipeline, SetUpPipeline(spec, pipeline_options));
  model.max_model_len = pipeline.kv.max_model_len;
  model.max_logprobs = pipeline.config.max_logprobs();
  model.dtype = DTypeName(DTypeOf(pipeline.config).value_or(model.spec.stored_dtype));

  // Declared before the objects that end streams, because it receives their spans.
  std::shared_ptr<OtlpExporter> spans;
  if (const std::string& endpoint = flags.serve.observation.otlp_endpoint; !endpoint.empty()) {
    spans = std::make_shared<OtlpExporter>(
        OtlpOptions{.endpoint = endpoint, .service = "stagecoach-router"});
  }
  PipelineWatch watch(WatchedStages(pipeline), {.end = flags.serve.stall_limit});
  StallSwitch stall_switch;
  const auto connect = [&](const v1::Lease& lease) {
    return MakePipelineClient(
        flags.stages, lease,
        {.on_draining = [&stop](const std::string& stage) { stop.StageDrains(stage); },
         .flight = flight,
         .vocab_size = spec.vocab_size,
         .watch = &watch,
         .on_stall = [&stall_switch](bool stalled) { stall_switch.SetStages(stalled); }},
        internal);
  };
  PipelineKeeperHooks hooks{.connect = connect,
                            .on_change =
                                [&](const absl::Status& loss) {
                                  if (!loss.ok()) {
                                    AskToReplace(flags.stages, watch.Read().stalled);
                                  } else {
                                    SayRestored();
                                  }
                                  stall_switch.SetRecovering(!loss.ok());
                                },
                            .on_lost = [&stop](const absl::Status& status) { stop.Stop(status); }};
  if (flags.serve.recovery_limit.count() > 0) {
    hooks.restore = [&](uint64_t lost_epoch,
                        const std::stop_token& stopping) -> absl::StatusOr<RestoredPipeline> {
      // Its workers are about to end, too.
      if (stop.requested()) return absl::CancelledError("the router is shutting down");
      return RestorePipeline(spec, pipeline_options, pipeline, lost_epoch,
                             flags.serve.recovery_limit, stopping);
    };
  }
  PipelineKeeper keeper(pipeline.lease, std::move(hooks));
  if (model.grammars.ok()) {
    model.grammars = MakeGrammarCache(
        (*model.grammars)->vocabulary(),
        MakeGrammarClient(
            flags.stages.back(),
            [&keeper](uint64_t failed_epoch) { return keeper.AwaitLease(failed_epoch); },
            internal));
  }
  SC_ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler,
                      Scheduler::Start(MakeSchedulerConfig(flags.serve, spec, pipeline), &keeper));
  ThreadWatch thread_watch({.end = flags.serve.stall_limit});
  const std::string name = model.name;
  Frontend frontend(
      MakeFrontendOptions(flags.serve, pipeline, spans.get(), &watch, &keeper, &thread_watch),
      std::move(model), StageStatuses(pipeline), scheduler.get());
  // The scheduler's sinks post to the frontend's threads, which call the scheduler. So it must stop
  // before these threads end, and be destroyed after them.
  const absl::Cleanup stop_scheduler = [&] {
    frontend.StopAccepting();
    thread_watch.End();
    scheduler->Stop();
  };
  std::vector<ThreadWatch::Asked> asked = frontend.AskTextThreads();
  asked.push_back(ThreadWatch::AskScheduler(scheduler.get()));
  thread_watch.Begin(
      std::move(asked),
      {.on_change = [&stall_switch](bool stalled) { stall_switch.SetThreads(stalled); },
       .on_lost = EndForThread});
  const auto scheduler_metrics = std::make_shared<SchedulerCollector>(scheduler.get(), name);
  const StageStats stage_stats = MakeStageStats(flags.stages, std::chrono::seconds(2), internal);
  const auto stage_metrics = std::make_shared<StageCollector>(
      stage_stats, StageCollector::Labels{{"model_name", name}, {"engine", kEngine}});
  const auto stall_metrics = std::make_shared<StallCollector>(
      [&watch] { return watch.Read(); },
      StallCollector::Labels{{"model_name", name}, {"engine", kEngine}});
  const auto recovery_metrics = std::make_shared<RecoveryCollector>(
      [&keeper] { return keeper.Read(); },
      RecoveryCollector::Labels{{"model_name", name}, {"engine", kEngine}});
  std::vector<std::shared_ptr<prometheus::Collectable>> sources = {
      scheduler_metrics, frontend.metrics().collectable(), stage_metrics, stall_metrics,
      recovery_metrics};
  if (spans != nullptr) sources.push_back(MakeTraceMetrics(spans));
  absl::Status reason;
  {
    std::unique_ptr<GrpcServer> grpc;
    if (flags.serve.grpc != "off") {
      SC_ASSIGN_OR_RETURN(grpc, GrpcServer::Start(flags.serve.grpc, access, &frontend));
    }
    std::unique_ptr<http::HttpServer> http;
    if (flags.serve.http != "off") {
      SC_ASSIGN_OR_RETURN(
          http, http::HttpServer::Start({.address = flags.serve.http,
                                         .cors_origins = flags.serve.cors,
                                         .limits = http::HttpLimits(flags.serve.http_limits)},
                                        access, &frontend, sources, MakeStageLoads(stage_stats)));
    }
    SC_ASSIGN_OR_RETURN(const std::string metrics_address,
                        ServeMetrics(flags.serve.metrics, sources));
    const StallSwitch::Listening listening(&stall_switch, [&grpc](bool stalled) {
      if (grpc != nullptr) grpc->SetStalled(stalled);
    });
    stop.ServingBegins();
    std::string addresses;
    if (grpc != nullptr) addresses += " grpc=" + grpc->address();
    if (http != nullptr) addresses += " http=" + http->address();
    spdlog::info(
        "serving {},{}, max_model_len {}, {} stages, {} sequences, at most {} tokens per step",
        name, addresses, pipeline.kv.max_model_len, pipeline.stages.size(),
        pipeline.config.max_sequences(), pipeline.config.max_batched_tokens());
    fmt::print("ready{} metrics={} kv_blocks={}\n", addresses, metrics_address,
               pipeline.kv.kv_blocks);
    std::fflush(stdout);

    {
      const ThroughputLog throughput(scheduler.get());
      reason = stop.Wait();
    }
    if (grpc != nullptr) grpc->SetNotServing();
    frontend.StopAccepting();
    if (http != nullptr) http->SetDraining();
    if (reason.ok()) {
      spdlog::info("stopping: running requests are finished first");
      scheduler->Drain().wait();
      // If the pipeline was lost meanwhile, the sequences that still ran ended with an error.
      reason = stop.loss();
    }
    // Shut both down in parallel: a client that does not read costs the grace period only once.
    std::thread http_end;
    if (http != nullptr) http_end = std::thread([&http] { http->Shutdown(kWriteGrace); });
    if (grpc != nullptr) grpc->Shutdown(kWriteGrace);
    if (http_end.joinable()) http_end.join();
  }
  scheduler_metrics->Detach();
  stage_metrics->Detach();
  stall_metrics->Detach();
  recovery_metrics->Detach();
  thread_watch.End();
  scheduler->Stop();
  if (spans != nullptr) spans->Stop();  // the metrics server keeps it alive
  return reason;
}

}  // namespace
}  // namespace stagecoach::router

int main(int argc, char** argv) {
  using namespace stagecoach;
  StopTrackingLockOrder();
  RaiseFileLimit();
  ShutdownSignals signals;
  signals.SecondEnds();
  router::Flags flags;
  CLI::App app("Serves a model with the workers that run its pipeline stages.",
               "stagecoach-router");
  app.add_option("--model", flags.model,
                 "Folder with config.json, weights and tokenizer, a .gguf file, or org/name in the "
                 "local Hugging Face cache")
      ->required()
      ->type_name("DIR");
  app.add_option("--stages", flags.stages, "Addresses of the workers, in stage order")
      ->required()
      ->delimiter(',')
      ->type_name("HOST:PORT,...");
  app.add_option("--log-level", flags.log_level,
                 "Least severe level to log: trace, debug, info, warning or error")
      ->capture_default_str();
  app.add_option("--exit-with-parent", flags.parent,
                 "Exit when the process with this id, the one that started this program, exits")
      ->type_name("PID");
  AddInternalFlags(app, flags.internal);
  AddServeFlags(app, flags.serve);
  CLI11_PARSE(app, argc, argv);

  if (flags.parent != 0) ExitWithParent(flags.parent);
  absl::Status status = InitLog("router", flags.log_level, flags.serve.observation.log_format);
  if (status.ok()) {
    router::StopRequest stop(&signals);
    status = router::Serve(flags, stop);
  }
  if (status.ok()) return 0;
  LogFatal(std::string(status.message()));
  return 1;
}
