#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <thread>

#include "cli/checked_start.h"
#include "cli/command.h"
#include "cli/launch/cluster.h"
#include "cli/serve_options.h"
#include "cli/style.h"
#include "common/flags/checks.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/log_writer.h"
#include "common/process.h"

namespace stagecoach::cli {
namespace {

// Time for the second signal to kill the children in order; they are killed with this process in
// any case.
constexpr std::chrono::seconds kKillGrace(3);

// Forwards SIGTERM, SIGINT and SIGUSR1 to a cluster as long as this object lives.
class StopOnSignal {
 public:
  StopOnSignal(ShutdownSignals& signals, launch::Cluster& cluster)
      : signals_(signals), thread_([this, &cluster] {
          bool is_first = true;
          while (const int signal = signals_.Wait()) {
            if (signal == SIGUSR1) {
              cluster.RequestFlight();
              continue;
            }
            if (is_first && isatty(STDERR_FILENO)) {
              WriteStderr(
                  "\nstopping after the running requests; press ctrl-C again to stop at once\n");
            }
            if (!is_first) second_ = signal;
            is_first = false;
            cluster.RequestStop();
          }
        }) {}
  ~StopOnSignal() {
    signals_.Interrupt();
    thread_.join();
  }

  // The second signal, which cut the orderly stop short; 0: none yet.
  int second() const { return second_; }

 private:
  ShutdownSignals& signals_;
  std::atomic<int> second_{0};
  std::thread thread_;
};

// Where this machine's browser finds a server that listens at `address`.
std::string UrlOf(const std::string& address, bool has_tls) {
  const HostPort place = SplitHostPort(address);
  std::string host = place.host;
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "::") host = "::1";
  if (host.find(':') != std::string::npos) host = fmt::format("[{}]", host);
  return fmt::format("{}://{}:{}", has_tls ? "https" : "http", host, place.port);
}

// For people; programs read the ready line.
void SayWhere(const launch::Endpoints& endpoints, const launch::ClusterOptions& options) {
  if (endpoints.http.empty()) return;
  const std::string url = UrlOf(endpoints.http, !options.serve.access.tls_cert.empty());
  if (isatty(STDERR_FILENO) != 1 || options.log_format() == launch::LogFormat::kJson) {
    spdlog::info("{} has a web page; OpenAI's API is at {}/v1", url, url);
    return;
  }
  const bool has_style = HasStyle(STDERR_FILENO);
  WriteStderr(
      fmt::format("\n  {}{}{}  a web page; OpenAI's API is at {}/v1. ctrl-C stops the server\n\n",
                  has_style ? "\x1b[1m" : "", url, has_style ? "\x1b[0m" : "", url));
}

struct ServeCommand {
  launch::ClusterOptions cluster;
  DefaultAddresses defaults;
};

int Serve(const ServeCommand& given) {
  launch::ClusterOptions options = given.cluster;
  ShutdownSignals signals(SIGUSR1);
  signals.SecondEnds(kKillGrace);
  if (const absl::Status status =
          InitLog("stagecoach", options.log_level, options.serve.observation.log_format);
      !status.ok()) {
    LogFatal(std::string(status.message()));
    return kExitError;
  }
  for (const std::string& move : MoveTakenAddresses(options.serve, given.defaults)) {
    spdlog::info("{}", move);
  }
  launch::Cluster cluster(options);
  const StopOnSignal stop_on_signal(signals, cluster);

  const absl::StatusOr<launch::Endpoints> endpoints = CheckedStart(cluster, options);
  if (absl::IsCancelled(endpoints.status())) return kExitOk;
  if (!endpoints.ok()) {
    LogFatal(std::string(endpoints.status().message()));
    return kExitError;
  }
  fmt::print("{}\n", endpoints->ready_line);
  std::fflush(stdout);
  SayWhere(*endpoints, options);

  const absl::Status status = cluster.Wait();
  if (const int signal = stop_on_signal.second(); signal != 0) return kExitBySignal + signal;
  if (status.ok()) return kExitOk;
  LogFatal(std::string(status.message()));
  return kExitError;
}

}  // namespace

void AddServe(CLI::App& app, Command& command) {
  auto given = std::make_shared<ServeCommand>();
  launch::ClusterOptions* const options = &given->cluster;
  options->serve.http = "127.0.0.1:8000";
  CLI::App* serve = app.add_subcommand(
      "serve",
      "Serves a model. Starts a router, and one worker process per stage. When the server is "
      "ready, prints \"ready grpc=HOST:PORT http=HOST:PORT metrics=HOST:PORT kv_blocks=N\"");
  serve->add_option("model", options->model, kModelHelp)->type_name("MODEL")->required();
  AddStageFlags(*serve, *options);
  serve->add_option("--log-level", options->log_level, "Lowest level that router and workers log")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error"}))
      ->capture_default_str();
  serve
      ->add_option("--spares", options->n_spares,
                   "Number of spare workers for each device. A spare takes the place of a lost "
                   "stage, so recovery is faster. Spares hold no weights and no KV cache")
      ->type_name("N")
      ->check(Between(0, 256))
      ->capture_default_str();
  AddServeFlags(*serve, options->serve);
  serve->footer("If a default port is in use, the server takes the next free port.");
  serve->callback([given, serve, &command] {
    const auto is_default = [serve](const char* flag) {
      return serve->get_option(flag)->count() == 0;
    };
    given->cluster.program_dir = ProgramDir();
    given->defaults = {.grpc = is_default("--grpc"),
                       .http = is_default("--http"),
                       .metrics = is_default("--metrics")};
    command = [given] { return Serve(*given); };
  });
}

}  // namespace stagecoach::cli
