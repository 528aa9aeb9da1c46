#include "cli/own_server.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string_view>

#include "cli/checked_start.h"
#include "cli/loading_line.h"
#include "cli/serve_options.h"

namespace stagecoach::cli {

launch::ClusterOptions OwnCluster() {
  launch::ClusterOptions cluster;
  cluster.program_dir = ProgramDir();
  cluster.log_level = "warning";
  cluster.echo_logs = false;
  cluster.serve.grpc = "127.0.0.1:0";
  cluster.serve.metrics = "127.0.0.1:0";
  cluster.serve.http = "off";
  return cluster;
}

void AddServerFlags(CLI::App& app, ServerChoice& choice) {
  CLI::Option* server = AddConnectionFlags(app, choice.connection);
  app.add_option(
         "--model", choice.cluster.model,
         "Model to serve for this command only. Without it, the command uses a running server")
      ->type_name("MODEL")
      ->excludes(server);
  AddStageFlags(app, choice.cluster);
}

absl::Status WithServer(const ServerChoice& choice,
                        const std::function<absl::Status(const Connection& connection)>& use) {
  if (choice.cluster.model.empty()) return use(choice.connection);
  launch::ClusterOptions options = choice.cluster;
  auto loading = std::make_shared<LoadingLine>(options.model);
  if (loading->on_terminal()) {
    options.log_level = "info";  // the lines about the load
    options.on_child_line = [shown = std::weak_ptr(loading)](std::string_view line) {
      if (const auto display = shown.lock()) display->Follow(line);
    };
  }
  launch::Cluster cluster(options);
  const absl::StatusOr<launch::Endpoints> endpoints = CheckedStart(cluster, options);
  loading = nullptr;
  if (!endpoints.ok()) return endpoints.status();
  Connection own;
  own.server = endpoints->grpc;
  own.resume_limit = {};  // if this router dies, the cluster ends
  const absl::Status used = use(own);
  cluster.RequestStop();
  const absl::Status ended = cluster.Wait();
  return ended.ok() ? used : ended;
}

}  // namespace stagecoach::cli
