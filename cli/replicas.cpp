#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "common/rpc/server.h"
#include "stagecoach/v1/replicas.grpc.pb.h"

namespace stagecoach::cli {
namespace {

struct ReplicaFlags {
  std::string control;
  uint32_t replica = 0;
  bool move = false;
  std::vector<std::string> workers;
};

std::unique_ptr<v1::Replicas::Stub> Connect(const ReplicaFlags& flags) {
  return v1::Replicas::NewStub(MakeChannel(
      "unix:" + std::filesystem::absolute(flags.control).string(), kMaxClientMessageBytes));
}

int Report(const grpc::Status& status, const std::string& text) {
  if (!status.ok()) {
    fmt::print(stderr, "error: {}\n", status.error_message());
    return kExitError;
  }
  fmt::print("{}", text);
  return kExitOk;
}

int List(const ReplicaFlags& flags) {
  grpc::ClientContext context;
  v1::ListReplicasResponse response;
  const grpc::Status status = Connect(flags)->List(&context, {}, &response);
  std::string text;
  for (const v1::ReplicaStatus& one : response.replicas()) {
    std::string state = one.draining() ? "drains" : "serves";
    if (!one.trouble().empty()) state = one.trouble();
    text += fmt::format("replica {}: {} running, {} waiting, workers {}: {}\n", one.replica(),
                        one.running(), one.waiting(), fmt::join(one.addresses(), ","), state);
  }
  return Report(status, text);
}

int Drain(const ReplicaFlags& flags) {
  grpc::ClientContext context;
  v1::DrainReplicaRequest request;
  request.set_replica(flags.replica);
  request.set_move(flags.move);
  v1::DrainReplicaResponse response;
  return Report(Connect(flags)->Drain(&context, request, &response),
                fmt::format("replica {} is drained\n", flags.replica));
}

int Add(const ReplicaFlags& flags) {
  grpc::ClientContext context;
  v1::AddReplicaRequest request;
  for (const std::string& address : flags.workers) request.add_addresses(address);
  v1::AddReplicaResponse response;
  const grpc::Status status = Connect(flags)->Add(&context, request, &response);
  return Report(status, fmt::format("replica {} is added\n", response.replica()));
}

}  // namespace

void AddReplicas(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ReplicaFlags>();
  CLI::App* replicas = app.add_subcommand(
      "replicas",
      "Lists, drains or adds replicas of a running server. The other replicas serve meanwhile");
  replicas->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, int (*run)(const ReplicaFlags&)) {
    CLI::App* const one = replicas->add_subcommand(name, help);
    one->add_option("--control", flags->control,
                    "Socket of the server: the value of its flag --control")
        ->type_name("PATH")
        ->required();
    one->callback([flags, run, &command] { command = [flags, run] { return run(*flags); }; });
    return one;
  };
  add("list", "Prints one line per replica: number, requests, workers and state", List);
  CLI::App* const drain = add(
      "drain",
      "Drains a replica. New requests go to other replicas. The command waits until the replica "
      "has no requests left, and releases its workers. The last working replica cannot be drained",
      Drain);
  drain->add_option("replica", flags->replica, "Number of the replica")->type_name("N")->required();
  drain->add_flag("--move", flags->move,
                  "Move running requests to other replicas at once, instead of waiting for them");
  CLI::App* const adding = add("add",
                               "Adds a replica. The command loads the model into its workers, and "
                               "the replica then gets requests",
                               Add);
  adding
      ->add_option("--workers", flags->workers,
                   "Addresses of the replica's workers, in the order of the stages (default: "
                   "`stagecoach serve` starts the workers)")
      ->delimiter(',')
      ->type_name("HOST:PORT,...");
}

}  // namespace stagecoach::cli
