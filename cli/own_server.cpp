#include "cli/own_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/checked_start.h"
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
  app.add_option("--model", choice.cluster.model,
                 "Model to serve only for this command, instead of using a running server")
      ->type_name("MODEL")
      ->excludes(server);
  AddStageFlags(app, choice.cluster);
}

absl::Status WithServer(const ServerChoice& choice,
                        const std::function<absl::Status(const Connection& connection)>& use) {
  if (choice.cluster.model.empty()) return use(choice.connection);
  if (isatty(STDERR_FILENO)) fmt::print(stderr, "starting {} ...\n", choice.cluster.model);
  launch::Cluster cluster(choice.cluster);
  const absl::StatusOr<launch::Endpoints> endpoints = CheckedStart(cluster, choice.cluster);
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
