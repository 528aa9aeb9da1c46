// stagecoach-worker: one pipeline stage in a process of its own.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "common/log.h"
#include "common/process.h"
#include "common/rpc/health.h"
#include "common/rpc/server.h"
#include "common/version.h"
#include "kernels/cpu/cpu_ops.h"
#include "worker/service/stage_service.h"
#include "worker/transport/grpc_transport.h"

namespace stagecoach::worker {
namespace {

struct Flags {
  std::string listen = "127.0.0.1:0";
  std::string device = "cpu";
  std::string log_level = "info";
  int32_t n_threads = 0;
  bool exit_with_parent = false;
};

int32_t NCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

// The host part of HOST:PORT as it was given, the port as it came to be.
std::string WithPort(const std::string& address, int port) {
  return fmt::format("{}:{}", address.substr(0, address.rfind(':')), port);
}

int Serve(const Flags& flags, ShutdownSignals& signals) {
  const int32_t n_threads = flags.n_threads > 0 ? flags.n_threads : NCores();
  const std::unique_ptr<kernels::Ops> ops = kernels::MakeCpuOps({.n_threads = n_threads});
  GrpcTransport transport;
  StageService service(ops.get(), n_threads, &transport);
  HealthService health;

  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(flags.listen, grpc::InsecureServerCredentials(), &port);
  ApplyServerDefaults(builder, kMaxInternalMessageBytes);
  builder.RegisterService(&service);
  builder.RegisterService(transport.service());
  builder.RegisterService(&health);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    fmt::print(stderr,
               "error: cannot listen on {}: is the port in use, the host one of this machine?\n",
               flags.listen);
    return 1;
  }
  health.SetServing("", true);
  health.SetServing(v1::Stage::service_full_name(), true);
  fmt::print("listening grpc={}\n", WithPort(flags.listen, port));
  std::fflush(stdout);
  spdlog::info("{} ({}), listening on {}", kVersion, ops->Describe(), WithPort(flags.listen, port));

  const int signal = signals.Wait();
  spdlog::info("signal {}: stopping", signal);
  health.Shutdown();
  service.Shutdown();
  transport.Shutdown();
  server->Shutdown();
  return 0;
}

int Main(int argc, char** argv) {
  ShutdownSignals signals;
  Flags flags;
  CLI::App app(
      "One pipeline stage of a stagecoach cluster: waits for a router to tell it which layers to "
      "load.",
      "stagecoach-worker");
  app.set_version_flag("--version", std::string("stagecoach-worker ") + kVersion);
  app.add_option("--listen", flags.listen, "HOST:PORT to serve gRPC on; port 0 picks a free one")
      ->capture_default_str();
  app.add_option("--device", flags.device, "What computes")
      ->check(CLI::IsMember({"cpu"}))
      ->capture_default_str();
  app.add_option("--threads", flags.n_threads, "Threads that compute; 0: one a core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warning or error")
      ->capture_default_str();
  app.add_flag("--exit-with-parent", flags.exit_with_parent, "End when the parent process ends");
  CLI11_PARSE(app, argc, argv);
  if (flags.exit_with_parent) ExitWithParent();
  if (absl::Status status = InitLog("worker", flags.log_level); !status.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(status.message()));
    return 2;
  }
  return Serve(flags, signals);
}

}  // namespace
}  // namespace stagecoach::worker

int main(int argc, char** argv) { return stagecoach::worker::Main(argc, argv); }
