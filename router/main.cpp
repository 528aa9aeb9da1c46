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
#include <memory>
#include <string>
#include <string_view>
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
#include "common/process.h"
#include "common/rpc/internal_access.h"
#include "common/status.h"
#include "common/trace/otlp_exporter.h"
#include "router/access/access.h"
#include "router/control_server.h"
#include "router/dispatch/grammar_client.h"
#include "router/dispatch/pipeline_setup.h"
#include "router/dispatch/stage_stats.h"
#include "router/frontend/frontend.h"
#include "router/frontend/grpc_server.h"
#include "router/frontend/http/http_server.h"
#include "router/frontend/throughput_log.h"
#include "router/journal/journal_metrics.h"
#include "router/kv_events/kv_event_metrics.h"
#include "router/kv_events/publisher.h"
#include "router/launcher_lines.h"
#include "router/pipeline_metrics.h"
#include "router/replica_changes.h"
#include "router/replicas/replica_set.h"
#include "router/served_pipelines.h"
#include "router/stall_switch.h"
#include "router/stop_request.h"
#include "router/succession.h"
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
  pid_t parent = 0;          // 0: do not exit with a parent process
  int launcher_socket = -1;  // -1: none
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

FrontendOptions MakeFrontendOptions(const ServeFlags& serve, const Pipelines& pipelines,
                                    SpanSink* spans, const ThreadWatch* thread_watch,
                                    Journal* journal) {
  FrontendOptions options;
  options.journal = journal;
  options.stages = [&pipelines] { return StageStatuses(pipelines); };
  options.not_ready = [&pipelines, thread_watch] {
    const std::string stalled = thread_watch->Stalled();
    return stalled.empty() ? TroubleOfAll(pipelines) : stalled;
  };
  options.max_prompts = static_cast<size_t>(serve.scheduler.max_waiting);
  options.max_choices = options.max_prompts + pipelines[0].pipeline().config.max_sequences();
  options.request_memory_bytes = serve.request_memory_bytes;
  options.streams = serve.streams;
  options.log_requests = serve.request_log;
  options.traces = {.spans = spans, .sample_ratio = serve.trace_sample_ratio};
  return options;
}

// For the ready line.
std::string AddressesOf(const KvEventPublisher* kv_events) {
  if (kv_events == nullptr) return "";
  std::string addresses = " kv_events=" + kv_events->endpoint();
  if (const std::string& replay = kv_events->replay_endpoint(); !replay.empty()) {
    addresses += " kv_events_replay=" + replay;
  }
  return addresses;
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
  SC_ASSIGN_OR_RETURN(const std::unique_ptr<Journal> journal, OpenJournal(flags.serve));
  std::unique_ptr<KvEventPublisher> kv_events;
  if (!flags.serve.kv_events.endpoint.empty()) {
    SC_ASSIGN_OR_RETURN(kv_events, KvEventPublisher::Start(flags.serve.kv_events));
  }
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
  for (const std::string& note : spec.notes) spdlog::info("{}: {}", model_dir, note);
  PipelineOptions common{.model_dir = model_dir,
                         .addresses = {},
                         .access = internal,
                         .flags = flags.serve.load,
                         .token_table = std::move(token_table),
                         .prefix_cache = flags.serve.scheduler.prefix_cache,
                         .terminal = isatty(STDERR_FILENO) == 1 && flags.serve.replicas == 1};
  if (journal != nullptr) common.lease_holder = journal->router().lease_holder();
  SC_ASSIGN_OR_RETURN(const std::vector<PipelineOptions> pipeline_options,
                      SplitStages(flags.stages, flags.serve.replicas, common));
  SC_ASSIGN_OR_RETURN(std::vector<Pipeline> set_up, SetUpAll(spec, pipeline_options));
  model.max_model_len = set_up.front().kv.max_model_len;
  model.max_logprobs = set_up.front().config.max_logprobs();
  model.dtype = DTypeName(DTypeOf(set_up.front().config).value_or(model.spec.stored_dtype));
  model.kv_dtype = DTypeName(KvDTypeOf(set_up.front().config, model.spec.stored_dtype));
  model.hidden_dtype = DTypeName(HiddenDTypeOf(set_up.front().config));

  // Declared before the objects that end streams, because it receives their spans.
  std::shared_ptr<OtlpExporter> spans;
  if (const std::string& endpoint = flags.serve.observation.otlp_endpoint; !endpoint.empty()) {
    spans = std::make_shared<OtlpExporter>(
        OtlpOptions{.endpoint = endpoint, .service = "stagecoach-router"});
  }
  StallSwitch stall_switch;
  LauncherLines launcher_lines;
  std::atomic<size_t> n_pipelines{0};  // without those that are drained or lost for good
  Pipelines pipelines;
  const auto leave_out = [&stop, &n_pipelines](const absl::Status& why) {
    const size_t n_left = --n_pipelines;
    if (n_left == 0) stop.Stop(why);
    return n_left;
  };
  const auto make_pipeline = [&](const PipelineOptions& options, Pipeline with_workers) {
    const size_t replica = pipelines.size();
    ++n_pipelines;
    return std::make_unique<ServedPipeline>(
        ServedPipeline::Context{
            .replica = replica,
            .spec = &spec,
            .flags = &flags.serve,
            .flight = replica == 0 ? flight : nullptr,  // its records are those of one pipeline
            .stop = &stop,
            .stall_switch = &stall_switch,
            .launcher_lines = &launcher_lines,
            .kv_events = kv_events.get(),
            .model_name = ServedName(flags),
            .on_gone =
                [replica, leave_out](const absl::Status& loss) {
                  const size_t n_left = leave_out(loss);
                  if (n_left == 0) return;
                  spdlog::error("replica {} is lost for good, and {} are left: {}", replica, n_left,
                                std::string(loss.message()));
                }},
        options, std::move(with_workers));
  };
  std::vector<ReplicaOptions> replicas;
  for (size_t i = 0; i < set_up.size(); ++i) {
    ServedPipeline& pipeline =
        pipelines.Append(make_pipeline(pipeline_options[i], std::move(set_up[i])));
    replicas.push_back({.config = pipeline.MakeSchedulerConfig(),
                        .client = pipeline.client(),
                        .is_stalled = [&pipeline] { return pipeline.is_stalled(); }});
  }
  if (model.grammars.ok()) {
    model.grammars = MakeGrammarCache((*model.grammars)->vocabulary(), GrammarPreparer(pipelines));
  }
  SC_ASSIGN_OR_RETURN(std::unique_ptr<ReplicaSet> scheduler, ReplicaSet::Start(replicas));
  ThreadWatch thread_watch({.end = flags.serve.stall_limit});
  const std::string name = model.name;
  Frontend frontend(
      MakeFrontendOptions(flags.serve, pipelines, spans.get(), &thread_watch, journal.get()),
      std::move(model), scheduler.get());
  // The scheduler's sinks post to the frontend's threads, which call the scheduler. So it must stop
  // before these threads end, and be destroyed after them.
  const absl::Cleanup stop_scheduler = [&] {
    frontend.StopAccepting();
    thread_watch.End();
    scheduler->Stop();
    if (journal != nullptr) journal->Stop();
  };
  std::vector<ThreadWatch::Asked> asked = frontend.AskTextThreads();
  asked.push_back(ThreadWatch::AskScheduler(scheduler.get()));  // all of them
  thread_watch.Begin(
      std::move(asked),
      {.on_change = [&stall_switch](bool stalled) { stall_switch.SetThreads(stalled); },
       .on_lost = EndForThread});
  if (journal != nullptr) ContinueStreams(frontend, *journal);
  const auto pipeline_metrics = std::make_shared<PipelineMetrics>();
  for (size_t i = 0; i < pipelines.size(); ++i) {
    pipeline_metrics->Add(pipelines[i].Export(&scheduler->scheduler(i), name));
  }
  std::vector<std::shared_ptr<prometheus::Collectable>> sources = {frontend.metrics().collectable(),
                                                                   pipeline_metrics};
  const auto journal_metrics = std::make_shared<JournalCollector>(
      [&journal] { return journal->Read(); }, JournalCollector::Labels{{"model_name", name}});
  if (journal != nullptr) sources.push_back(journal_metrics);
  const auto kv_event_metrics = std::make_shared<KvEventCollector>(
      [&kv_events] { return kv_events->Read(); }, KvEventCollector::Labels{{"model_name", name}});
  if (kv_events != nullptr) sources.push_back(kv_event_metrics);
  if (spans != nullptr) sources.push_back(MakeTraceMetrics(spans));
  ReplicaChanges changes({.spec = &spec,
                          .options = common,
                          .model_name = name,
                          .pipelines = &pipelines,
                          .scheduler = scheduler.get(),
                          .metrics = pipeline_metrics.get(),
                          .launcher_lines = &launcher_lines,
                          .launcher = UniqueFd(flags.launcher_socket),
                          .make = make_pipeline,
                          .on_left = [&leave_out](const absl::Status& why) { leave_out(why); }});
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
                                         .limits = http::HttpLimits(flags.serve.http_limits),
                                         .responses = flags.serve.responses},
                                        access, &frontend, sources, LoadsOfAll(pipelines),
                                        RecoveriesOfAll(pipelines)));
    }
    SC_ASSIGN_OR_RETURN(const std::string metrics_address,
                        ServeMetrics(flags.serve.metrics, sources));
    std::unique_ptr<ControlServer> control;
    if (!flags.serve.control.empty()) {
      SC_ASSIGN_OR_RETURN(control, ControlServer::Start(flags.serve.control, &changes));
    }
    const StallSwitch::Listening listening(&stall_switch, [&grpc](bool stalled) {
      if (grpc != nullptr) grpc->SetStalled(stalled);
    });
    stop.ServingBegins();
    std::string addresses;
    if (grpc != nullptr) addresses += " grpc=" + grpc->address();
    if (http != nullptr) addresses += " http=" + http->address();
    const Pipeline& first = pipelines[0].pipeline();
    spdlog::info(
        "serving {},{}, max_model_len {}, {} replicas of {} stages, each with {} sequences and at "
        "most {} tokens per step",
        name, addresses, first.kv.max_model_len, pipelines.size(), first.stages.size(),
        first.config.max_sequences(), first.config.max_batched_tokens());
    fmt::print("ready{} metrics={} kv_blocks={}{}\n", addresses, metrics_address,
               first.kv.kv_blocks, AddressesOf(kv_events.get()));
    std::fflush(stdout);

    {
      const ThroughputLog throughput(scheduler.get());
      reason = stop.Wait();
    }
    changes.Stop();
    control = nullptr;
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
  for (size_t i = 0; i < pipelines.size(); ++i) pipelines[i].Detach();
  journal_metrics->Detach();
  kv_event_metrics->Detach();
  thread_watch.End();
  scheduler->Stop();
  if (journal != nullptr && reason.ok()) journal->StopInOrder();
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
  CLI::App app("Serves a model through workers that run its pipeline stages.", "stagecoach-router");
  app.add_option("--model", flags.model,
                 "Model: a folder with config.json, weights and tokenizer; a .gguf file; or "
                 "org/name in the local Hugging Face cache")
      ->required()
      ->type_name("DIR");
  app.add_option("--stages", flags.stages,
                 "Addresses of the workers, in the order of the stages. With --replicas, give the "
                 "workers of the first replica, then those of the second, and so on")
      ->required()
      ->delimiter(',')
      ->type_name("HOST:PORT,...");
  app.add_option("--log-level", flags.log_level,
                 "Lowest level to log: trace, debug, info, warning or error")
      ->capture_default_str();
  app.add_option("--exit-with-parent", flags.parent,
                 "Id of the parent process. This program exits when the parent exits")
      ->type_name("PID");
  app.add_option("--launcher-socket", flags.launcher_socket,
                 "Inherited socket of the launcher. The router asks there for workers, and gets "
                 "their addresses")
      ->type_name("FD");
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
