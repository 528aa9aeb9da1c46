// stagecoach-worker: one pipeline stage in a process of its own.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/flags/internal_flags.h"
#include "common/flight/flight_recorder.h"
#include "common/log.h"
#include "common/log_writer.h"
#include "common/metrics/metrics_server.h"
#include "common/metrics/stage_collector.h"
#include "common/numa.h"
#include "common/process.h"
#include "common/rpc/internal_access.h"
#include "common/rpc/probe_service.h"
#include "common/rpc/server.h"
#include "common/trace/otlp_exporter.h"
#include "common/version.h"
#include "worker/make_ops.h"
#include "worker/make_transport.h"
#include "worker/service/stage_service.h"
#include "worker/transport/grpc_transport.h"

namespace stagecoach::worker {
namespace {

// For calls under way to end when the device is lost.
constexpr auto kLostGrace = std::chrono::seconds(5);
// For an orderly end; the launcher waits a little longer.
constexpr auto kEndGrace = std::chrono::seconds(8);
// For the router to let go while nothing gets on: it has its own limits, which come first.
constexpr auto kDrainStall = std::chrono::seconds(40);

struct Flags {
  std::string listen = "127.0.0.1:0";
  std::string device = "cpu";
  std::string log_level = "info";
  std::string log_format = "text";
  std::string flight_recorder = "/tmp";
  std::string metrics = "off";
  std::string otlp_endpoint;
  InternalFlags internal;
  bool insecure_no_secret = false;
  int32_t n_threads = 0;
  int32_t numa_node = -1;
  bool batch_invariant = false;
  pid_t parent = 0;  // 0: not tied to it
  TransportFlags transport;
};

int32_t NCores() {
  const cpu_set_t cores = AllowedCores();
  return CPU_COUNT(&cores);
}

// Threads and memory near each other, for what is started after it. INVALID_ARGUMENT for a node
// that is not there.
absl::Status PlaceOnNumaNodes(int32_t node_id) {
  const std::vector<NumaNode> nodes = NumaNodes();
  if (node_id < 0) return nodes.size() > 1 ? InterleaveMemory(nodes) : absl::OkStatus();
  const auto node = std::find_if(nodes.begin(), nodes.end(),
                                 [&](const NumaNode& node) { return node.id == node_id; });
  if (node == nodes.end()) {
    return absl::InvalidArgumentError(
        fmt::format("--numa-node {}: no such node with cores for this process", node_id));
  }
  return BindToNumaNode(*node);
}

// Ends the wait for signals when the device is lost.
class DeviceLoss {
 public:
  explicit DeviceLoss(ShutdownSignals* signals) : signals_(signals) {}

  void Tell(absl::Status status) {
    {
      const std::lock_guard lock(mutex_);
      status_ = std::move(status);
    }
    signals_->Interrupt();
  }
  absl::Status Get() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  ShutdownSignals* const signals_;
  mutable std::mutex mutex_;
  absl::Status status_;  // guarded by mutex_; OK: it is there
};

// The host part of HOST:PORT as it was given, the port as it came to be.
std::string WithPort(const std::string& address, int port) {
  return fmt::format("{}:{}", address.substr(0, address.rfind(':')), port);
}

void SayError(std::string_view text) { WriteStderr(fmt::format("error: {}\n", text)); }

// Until the router has let go; false: it does not, and nothing gets on.
bool AwaitRelease(const StageService& service, const absl::Notification& released) {
  std::string last;
  auto moved = std::chrono::steady_clock::now();
  while (!released.WaitForNotificationWithTimeout(absl::Milliseconds(100))) {
    const auto now = std::chrono::steady_clock::now();
    const std::optional<v1::StepProgress> progress = service.Progress();
    std::string state = progress ? progress->SerializeAsString() : "";
    if (state != last) {
      last = std::move(state);
      moved = now;
    }
    if (now - moved > kDrainStall) return false;
  }
  return true;
}

int Serve(const Flags& flags, ShutdownSignals& signals) {
  signals.SecondEnds();
  if (const absl::Status status = PlaceOnNumaNodes(flags.numa_node);
      absl::IsInvalidArgument(status)) {
    SayError(std::string(status.message()));
    return 2;
  } else if (!status.ok()) {
    spdlog::warn("{}; weights may be read from another socket's memory",
                 std::string(status.message()));
  }
  const absl::StatusOr<InternalAccess> access = ReadInternalAccess(flags.internal);
  absl::Status reach = access.status();
  if (reach.ok()) reach = CheckListen(flags.listen, *access, flags.insecure_no_secret);
  if (!reach.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(reach.message()));
    return 2;
  }
  if (const absl::Status status = ApplyTransportFlags(flags.transport); !status.ok()) {
    SayError(std::string(status.message()));
    return 2;
  }
  const int32_t n_threads = flags.n_threads > 0 ? flags.n_threads : NCores();
  const absl::StatusOr<std::unique_ptr<kernels::Ops>> ops =
      MakeOps({.device = flags.device,
               .n_threads = n_threads,
               .batch_invariant = flags.batch_invariant,
               .disturbance_seed = flags.transport.disturbance_seed});
  if (!ops.ok()) {
    SayError(std::string(ops.status().message()));
    return 1;
  }
  GrpcTransport host_transport({.access = *access});
  const std::unique_ptr<Transport> device_transport =
      MakeDeviceTransport(flags.transport, **ops, &host_transport);
  Transport* const transport = device_transport ? device_transport.get() : &host_transport;
  std::unique_ptr<OtlpExporter> spans;
  if (!flags.otlp_endpoint.empty()) {
    spans = std::make_unique<OtlpExporter>(
        OtlpOptions{.endpoint = flags.otlp_endpoint, .service = "stagecoach-worker"});
  }
  // To the process's end: a handler may come as late.
  static FlightRecorder* const flight = new FlightRecorder(FlightRole::kStage);
  if (const absl::Status status =
          WriteFlightOnSignals(flight, flags.flight_recorder, "stagecoach-worker");
      !status.ok()) {
    SayError(std::string(status.message()));
    return 2;
  }
  DeviceLoss loss(&signals);
  StageService service(ops->get(), n_threads, transport, StageModel::Load,
                       {.flight = flight, .spans = spans.get()},
                       [&loss](absl::Status status) { loss.Tell(std::move(status)); });
  ProbeService probe;
  const auto stage_metrics = std::make_shared<StageCollector>(
      [&service] { return std::vector{std::optional(service.ReadStats())}; },
      StageCollector::Labels{});

  grpc::ServerBuilder builder;
  int port = 0;
  AddInternalPort(builder, flags.listen, *access, &port);
  ApplyServerDefaults(builder, kMaxInternalMessageBytes);
  NoticeLostClients(builder);
  builder.RegisterService(&service);
  builder.RegisterService(host_transport.service());
  builder.RegisterCallbackGenericService(&probe);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    SayError(
        fmt::format("cannot listen on {}: check that the port is free and that the host is an "
                    "address of this machine",
                    flags.listen));
    return 1;
  }
  if (access->secret.empty()) {
    spdlog::warn("no --secret-file: everyone who can reach {} can use this worker",
                 WithPort(flags.listen, port));
  }
  probe.SetServing(true);
  std::string metrics_field;
  if (flags.metrics != "off") {
    const absl::StatusOr<std::string> address = ServeMetrics(flags.metrics, {stage_metrics});
    if (!address.ok()) {
      SayError(std::string(address.status().message()));
      return 1;
    }
    metrics_field = fmt::format(" metrics={}", *address);
  }
  fmt::print("listening grpc={}{}\n", WithPort(flags.listen, port), metrics_field);
  std::fflush(stdout);
  spdlog::info("{} ({}), listening on {}", kVersion, (*ops)->Describe(),
               WithPort(flags.listen, port));

  const int signal = signals.Wait();  // 0: the device is lost
  absl::Notification released;
  bool let_go = true;
  if (signal != 0 && service.BeginDrain([&released] { released.Notify(); })) {
    spdlog::info(
        "signal {}: waiting for the router to finish the running requests; a second signal stops "
        "at once",
        signal);
    let_go = AwaitRelease(service, released);
  }
  if (signal != 0) {
    spdlog::info("signal {}: stopping", signal);
    EndWithin(let_go ? kEndGrace : std::chrono::seconds(0),
              let_go ? "the worker cannot shut down cleanly: a thread hangs"
                     : "the router has not released the worker, and no step makes progress");
  }
  probe.SetServing(false);
  service.Shutdown();
  host_transport.Shutdown();
  if (const absl::Status lost = loss.Get(); !lost.ok()) {
    // The router still hears of it.
    EndWithin(2 * kLostGrace, std::string(lost.message()));
    server->Shutdown(std::chrono::system_clock::now() + kLostGrace);
    SayError(fmt::format("{}; start the worker again", std::string(lost.message())));
    FlushStderr();
    std::_Exit(1);  // destructors would call the device, or wait for what is held up
  }
  server->Shutdown();
  stage_metrics->Detach();
  return 0;
}

int Main(int argc, char** argv) {
  StopTrackingLockOrder();
  RaiseFileLimit();
  ShutdownSignals signals;
  Flags flags;
  CLI::App app(
      "One pipeline stage of a stagecoach cluster: waits for a router to tell it which layers to "
      "load.",
      "stagecoach-worker");
  app.set_version_flag("--version", std::string("stagecoach-worker ") + kVersion);
  app.add_option("--listen", flags.listen, "HOST:PORT to serve gRPC on; port 0: any free port")
      ->capture_default_str();
  AddInternalFlags(app, flags.internal);
  app.add_flag("--insecure-no-secret", flags.insecure_no_secret,
               "Listen beyond this machine without a --secret-file: everyone who can reach the "
               "port can use the worker");
  app.add_option("--device", flags.device, "Device that computes: cpu, cuda or cuda:N")
      ->capture_default_str();
  app.add_flag(
      "--batch-invariant", flags.batch_invariant,
      "On a GPU: the results of a row do not depend on the other rows in its batch; slower");
  app.add_option("--threads", flags.n_threads, "Compute threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--numa-node", flags.numa_node,
                 "NUMA node whose cores and memory are used; -1: all cores, with memory "
                 "interleaved over all nodes")
      ->check(CLI::Range(-1, 1023))
      ->capture_default_str();
  app.add_option(
         "--transport", flags.transport.transport,
         "Transport of messages between stages on GPUs: auto (NCCL if all stages have it) or host")
      ->check(CLI::IsMember({"auto", "host"}))
      ->capture_default_str();
  app.add_option("--nccl-library", flags.transport.nccl_library,
                 "NCCL's library (default: libnccl.so.2 where the system finds it)");
  app.add_option("--nccl-interface", flags.transport.nccl_interface,
                 "Network interface that NCCL uses between machines, such as eth0");
  app.add_option("--nccl-setting", flags.transport.nccl_settings,
                 "A setting of NCCL, NCCL_NAME=VALUE; may be repeated");
  app.add_option("--link-timeout", flags.transport.link_timeout_s,
                 "Upper limit of a step's time on one stage, in seconds. A link without progress "
                 "for this time multiplied by the number of stages, plus two seconds, ends the "
                 "pipeline (with a router, its --stall-limit normally comes first)")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warning or error")
      ->capture_default_str();
  app.add_option("--log-format", flags.log_format, "text: plain lines; json: one object per line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--metrics", flags.metrics,
                 "HOST:PORT of a Prometheus page /metrics for this stage only (the router's page "
                 "has all stages); port 0: any free port; \"off\": none")
      ->capture_default_str();
  app.add_option("--otlp-endpoint", flags.otlp_endpoint,
                 "HOST:PORT of an OpenTelemetry receiver (OTLP over gRPC) for the spans of traced "
                 "requests' steps (default: none)");
  app.add_option(
         "--flight-recorder", flags.flight_recorder,
         "Folder to which the last steps are written on SIGUSR1 and on a crash; \"off\": none")
      ->capture_default_str();
  app.add_option("--disturb", flags.transport.disturbance_seed,
                 "For GPU tests: seed of random delays on every stream; unwritten memory, KV "
                 "blocks and link slots are filled with NaN; 0: off")
      ->type_name("SEED")
      ->capture_default_str();
  app.add_option("--exit-with-parent", flags.parent,
                 "Exit when the parent process exits; PID is the parent's process id")
      ->type_name("PID");
  CLI11_PARSE(app, argc, argv);
  if (flags.parent != 0) ExitWithParent(flags.parent);
  if (absl::Status status = InitLog("worker", flags.log_level, flags.log_format); !status.ok()) {
    SayError(std::string(status.message()));
    return 2;
  }
  return Serve(flags, signals);
}

}  // namespace
}  // namespace stagecoach::worker

int main(int argc, char** argv) { return stagecoach::worker::Main(argc, argv); }
