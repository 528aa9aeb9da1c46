// stagecoach-worker: runs one pipeline stage in a separate process.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/fd_store/fd_packet.h"
#include "common/fd_store/fd_store_client.h"
#include "common/flags/checks.h"
#include "common/flags/flag_table.h"
#include "common/flags/internal_flags.h"
#include "common/flags/observation_flags.h"
#include "common/flags/worker_flags.h"
#include "common/flight/flight_recorder.h"
#include "common/log.h"
#include "common/metrics/metrics_server.h"
#include "common/metrics/stage_collector.h"
#include "common/mutex.h"
#include "common/numa.h"
#include "common/process.h"
#include "common/rpc/internal_access.h"
#include "common/rpc/probe_service.h"
#include "common/rpc/server.h"
#include "common/trace/otlp_exporter.h"
#include "common/unique_fd.h"
#include "common/version.h"
#include "worker/make_ops.h"
#include "worker/make_transport.h"
#include "worker/service/load_request.h"
#include "worker/service/stage_service.h"
#include "worker/service/tuning_file.h"
#include "worker/transport/grpc_transport.h"

namespace stagecoach::worker {
namespace {

// Time for running calls to end when the device is lost.
constexpr auto kLostGrace = std::chrono::seconds(5);
// Time for a normal exit. The launcher waits a little longer.
constexpr auto kEndGrace = std::chrono::seconds(8);
// Time without progress after which draining is given up. The router's own limits come first.
constexpr auto kDrainStall = std::chrono::seconds(40);

struct Flags {
  std::string listen = "127.0.0.1:0";
  std::string device = "cpu";
  std::string log_level = "info";
  std::string metrics = "off";
  ObservationFlags observation;
  InternalFlags internal;
  bool insecure_no_secret = false;
  int32_t n_threads = 0;
  int32_t numa_node = -1;
  pid_t parent = 0;       // 0: not tied to a parent
  int memory_store = -1;  // -1: none
  bool is_spare = false;
  WorkerFlags worker;
};

int32_t NCores() {
  const cpu_set_t cores = AllowedCores();
  return CPU_COUNT(&cores);
}

// Places threads and memory near each other. Affects everything started later. INVALID_ARGUMENT if
// the node does not exist.
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
      const MutexLock lock(mutex_);
      status_ = std::move(status);
    }
    signals_->Interrupt();
  }
  absl::Status Get() const {
    const MutexLock lock(mutex_);
    return status_;
  }

 private:
  ShutdownSignals* const signals_;
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // OK: it is there
};

// Returns the host part of HOST:PORT as given, with the actual port.
std::string WithPort(const std::string& address, int port) {
  return fmt::format("{}:{}", address.substr(0, address.rfind(':')), port);
}

// Waits until the router has released the worker. Returns false if it does not and nothing makes
// progress.
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

std::string TuningFolder(const WorkerFlags& flags) {
  if (flags.tuning_folder == "off") return "";
  return flags.tuning_folder.empty() ? DefaultTuningFolder() : flags.tuning_folder;
}

int Serve(const Flags& flags, ShutdownSignals& signals) {
  signals.SecondEnds();
  if (const absl::Status status = PlaceOnNumaNodes(flags.numa_node);
      absl::IsInvalidArgument(status)) {
    LogFatal(std::string(status.message()));
    return 2;
  } else if (!status.ok()) {
    spdlog::warn("{}; weights may be read from another socket's memory",
                 std::string(status.message()));
  }
  const absl::StatusOr<InternalAccess> access = ReadInternalAccess(flags.internal);
  absl::Status reach = access.status();
  if (reach.ok()) reach = CheckListen(flags.listen, *access, flags.insecure_no_secret);
  if (!reach.ok()) {
    LogFatal(std::string(reach.message()));
    return 2;
  }
  if (const absl::Status status = ApplyTransportFlags(flags.worker.transport); !status.ok()) {
    LogFatal(std::string(status.message()));
    return 2;
  }
  const int32_t n_threads = flags.n_threads > 0 ? flags.n_threads : NCores();
  // By default, CUDA loads a kernel when it is first launched. A spare has time to load all now.
  if (flags.is_spare) setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  const absl::StatusOr<std::unique_ptr<kernels::Ops>> ops =
      MakeOps({.device = flags.device,
               .n_threads = n_threads,
               .batch_invariant = flags.worker.batch_invariant,
               .disturbance_seed = flags.worker.disturbance_seed,
               .reserved_bytes = flags.worker.reserved_bytes});
  if (!ops.ok()) {
    LogFatal(std::string(ops.status().message()));
    return 1;
  }
  GrpcTransport host_transport({.access = *access});
  const std::unique_ptr<Transport> device_transport =
      MakeDeviceTransport(flags.worker, **ops, &host_transport);
  Transport* const transport = device_transport ? device_transport.get() : &host_transport;
  std::unique_ptr<OtlpExporter> spans;
  if (const std::string& endpoint = flags.observation.otlp_endpoint; !endpoint.empty()) {
    spans = std::make_unique<OtlpExporter>(
        OtlpOptions{.endpoint = endpoint, .service = "stagecoach-worker"});
  }
  // Never destroyed, because a signal handler may run until the process ends.
  static FlightRecorder* const flight = new FlightRecorder(FlightRole::kStage);
  if (const absl::Status status =
          WriteFlightOnSignals(flight, flags.observation.flight_recorder, "stagecoach-worker");
      !status.ok()) {
    LogFatal(std::string(status.message()));
    return 2;
  }
  std::string listen = flags.listen;
  std::optional<FdStoreClient> store;
  if (flags.memory_store >= 0) {
    UniqueFd socket(flags.memory_store);
    if (flags.is_spare) {
      transport->WarmUp();
      spdlog::info("waits for a place");
      const absl::StatusOr<Packet> place = ReceivePacket(socket);
      if (!place.ok()) return 0;  // the launcher needs it no more
      listen = place->bytes;
    }
    store.emplace(std::move(socket));
  }
  DeviceLoss loss(&signals);
  StageService service(
      ops->get(), n_threads, transport,
      flags.worker.batch_invariant ? LoadBatchInvariant : StageModel::Load,
      {.flight = flight, .spans = spans.get()},
      [&loss](absl::Status status) { loss.Tell(std::move(status)); }, store ? &*store : nullptr,
      TuningFolder(flags.worker));
  ProbeService probe;
  const auto stage_metrics = std::make_shared<StageCollector>(
      [&service] { return std::vector{std::optional(service.ReadStats())}; },
      StageCollector::Labels{});

  grpc::ServerBuilder builder;
  int port = 0;
  AddInternalPort(builder, listen, *access, &port);
  ApplyServerDefaults(builder, kMaxInternalMessageBytes);
  NoticeLostClients(builder);
  builder.RegisterService(&service);
  builder.RegisterService(host_transport.service());
  builder.RegisterCallbackGenericService(&probe);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    LogFatal(
        fmt::format("cannot listen on {}: check that the port is free and that the host is an "
                    "address of this machine",
                    listen));
    return 1;
  }
  if (access->secret.empty()) {
    spdlog::warn("no --secret-file: everyone who can reach {} can use this worker",
                 WithPort(listen, port));
  }
  probe.SetServing(true);
  std::string metrics_field;
  if (flags.metrics != "off") {
    const absl::StatusOr<std::string> address = ServeMetrics(flags.metrics, {stage_metrics});
    if (!address.ok()) {
      LogFatal(std::string(address.status().message()));
      return 1;
    }
    metrics_field = fmt::format(" metrics={}", *address);
  }
  fmt::print("listening grpc={}{}\n", WithPort(listen, port), metrics_field);
  std::fflush(stdout);
  spdlog::info("{} ({}), listening on {}", kVersion, (*ops)->Describe(), WithPort(listen, port));

  const int signal = signals.Wait();  // 0: the device is lost
  absl::Notification released;
  bool let_go = true;
  if (signal != 0 && service.BeginDrain([&released] { released.Notify(); })) {
    spdlog::info(
        "signal {}: serving until the router hands this stage over or has finished the running "
        "requests; a second signal stops at once",
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
    // Give the router time to receive the error.
    EndWithin(2 * kLostGrace, std::string(lost.message()));
    server->Shutdown(std::chrono::system_clock::now() + kLostGrace);
    LogFatal(fmt::format("{}; start the worker again", std::string(lost.message())));
    std::_Exit(1);  // destructors would call the device or wait for a blocked thread
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
      "Runs one pipeline stage. The worker waits for a router, which tells it the layers to load.",
      "stagecoach-worker");
  app.set_version_flag("--version", std::string("stagecoach-worker ") + kVersion);
  app.add_option(
         "--listen", flags.listen,
         "Address HOST:PORT of the worker's gRPC server. With port 0 the system picks a free port")
      ->capture_default_str();
  AddInternalFlags(app, flags.internal);
  app.add_flag("--insecure-no-secret", flags.insecure_no_secret,
               "Let a worker without a --secret-file listen on an address that other machines can "
               "reach. Everyone who reaches the port can then control the worker");
  app.add_option("--device", flags.device, "Compute device: cpu, cuda or cuda:N")
      ->capture_default_str();
  app.add_option("--threads", flags.n_threads, "Number of compute threads. 0: one per core")
      ->check(Between(0, 1024))
      ->capture_default_str();
  app.add_option("--numa-node", flags.numa_node,
                 "NUMA node whose cores and memory the worker uses. -1: all cores, and memory "
                 "interleaved over all nodes")
      ->check(Between(-1, 1023))
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level,
                 "Lowest level to log: trace, debug, info, warning or error")
      ->capture_default_str();
  app.add_option(
         "--metrics", flags.metrics,
         "Address HOST:PORT of a Prometheus page /metrics with only this stage. The router's page "
         "has all stages. With port 0 the system picks a free port. \"off\": no page")
      ->capture_default_str();
  FlagTable table(app);
  DeclareObservationFlags(table, flags.observation);
  DeclareWorkerFlags(table, flags.worker);
  app.add_option("--exit-with-parent", flags.parent,
                 "Id of the parent process. This program exits when the parent exits")
      ->type_name("PID");
  app.add_option("--memory-store", flags.memory_store,
                 "Inherited socket of the launcher's store. The store keeps this stage's memory "
                 "for its replacement")
      ->type_name("FD");
  app.add_flag(
         "--spare", flags.is_spare,
         "Start as a spare. The worker waits on --memory-store for the address at which it listens")
      ->needs("--memory-store");
  CLI11_PARSE(app, argc, argv);
  if (flags.parent != 0) ExitWithParent(flags.parent);
  if (absl::Status status = InitLog("worker", flags.log_level, flags.observation.log_format);
      !status.ok()) {
    LogFatal(std::string(status.message()));
    return 2;
  }
  return Serve(flags, signals);
}

}  // namespace
}  // namespace stagecoach::worker

int main(int argc, char** argv) { return stagecoach::worker::Main(argc, argv); }
