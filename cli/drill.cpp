#include "cli/drill/drill.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>

#include "cli/checked_start.h"
#include "cli/command.h"
#include "cli/drill/report.h"
#include "cli/drill/requests.h"
#include "cli/own_server.h"
#include "cli/serve_options.h"
#include "common/flags/checks.h"
#include "common/flags/serve_flags.h"
#include "common/json_text.h"
#include "common/rpc/server.h"

namespace stagecoach::cli {
namespace {

using drill::Fault;

// Time for everything but the limits of the pipeline itself.
constexpr std::chrono::seconds kGrace(120);

struct DrillFlags {
  launch::ClusterOptions cluster = OwnCluster();
  drill::Plan plan{.faults = {Fault::kKill, Fault::kStop}};
  uint32_t n_streams = 32;
  uint32_t n_tokens = 300;
  bool json = false;
};

// Runs the drill on a thread of its own, because this one replaces the cluster's lost processes.
absl::Status RunOn(launch::Cluster& cluster, const std::string& address, const DrillFlags& flags,
                   const std::function<void(const drill::Row&)>& on_row) {
  absl::Status drilled;
  std::thread thread([&] {
    const drill::Hooks hooks{.inflict =
                                 [&cluster](Fault fault, uint32_t stage) {
                                   cluster.RequestSignal(stage,
                                                         fault == Fault::kKill ? SIGKILL : SIGSTOP);
                                 },
                             .on_row = on_row};
    drilled =
        drill::RunDrill(MakeChannel(address, kMaxClientMessageBytes),
                        drill::MixedRequests(flags.n_streams, flags.n_tokens), flags.plan, hooks);
    cluster.RequestStop();
  });
  const absl::Status ended = cluster.Wait();
  thread.join();
  // The end of the pipeline is the cause of what the drill has met.
  return ended.ok() ? drilled : ended;
}

int Drill(DrillFlags flags) {
  flags.plan.n_stages = flags.cluster.n_stages;
  flags.plan.patience =
      kGrace + flags.cluster.serve.stall_limit + flags.cluster.serve.recovery_limit;
  // On GPUs only such steps give the same tokens again.
  if (flags.cluster.device == "cuda") flags.cluster.worker.batch_invariant = true;
  if (isatty(STDERR_FILENO)) fmt::print(stderr, "starting {} ...\n", flags.cluster.model);
  launch::Cluster cluster(flags.cluster);
  const absl::StatusOr<launch::Endpoints> endpoints = CheckedStart(cluster, flags.cluster);
  std::vector<drill::Row> rows;
  absl::Status status = endpoints.status();
  if (endpoints.ok()) {
    if (!flags.json) fmt::print("{}", drill::TableHead());
    status = RunOn(cluster, endpoints->grpc, flags, [&](const drill::Row& row) {
      rows.push_back(row);
      if (!flags.json) fmt::print("{}", drill::TableLine(row));
      std::fflush(stdout);
    });
    if (flags.json) {
      fmt::print("{}\n", JsonText(drill::ToJson(rows)));
    } else {
      fmt::print("{}", drill::TableEnd(rows));
    }
  }
  if (!status.ok()) fmt::print(stderr, "error: {}\n", std::string(status.message()));
  return status.ok() && drill::AllIdentical(rows) ? kExitOk : kExitError;
}

template <typename T>
void AddCount(CLI::App& app, const char* name, T& value, const char* help) {
  app.add_option(name, value, help)->type_name("N")->check(MoreThanZero())->capture_default_str();
}

}  // namespace

void AddDrill(CLI::App& app, Command& command) {
  auto flags = std::make_shared<DrillFlags>();
  flags->cluster.n_stages = 2;
  CLI::App* drill =
      app.add_subcommand("drill",
                         "Tests recovery on this machine. Starts a pipeline and kills its stages "
                         "one after the other while streams run. Compares each stream with the "
                         "same stream without a fault. Exits with 1 if a stream differs");
  drill->add_option("model", flags->cluster.model, kModelHelp)->type_name("MODEL")->required();
  drill
      ->add_option("--faults", flags->plan.faults,
                   "Faults to inject into each stage's process. kill: SIGKILL; stop: SIGSTOP, "
                   "which the router must detect (default: kill,stop)")
      ->type_name("NAME,NAME...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(CLI::CheckedTransformer(
                      std::map<std::string, Fault>{{"kill", Fault::kKill}, {"stop", Fault::kStop}})
                      .description(""));
  AddCount(*drill, "--rounds", flags->plan.n_rounds,
           "Number of times that each fault is injected into each stage");
  AddCount(*drill, "--streams", flags->n_streams,
           "Number of streams that run at the same time. They are a mix: greedy, seeded, with "
           "penalties, log-probabilities, grammars, two choices");
  AddCount(*drill, "--tokens", flags->n_tokens, "Number of tokens of each stream");
  drill->add_flag("--json", flags->json, "Print one JSON object instead of a table");
  AddStageFlags(*drill, flags->cluster);
  AddPipelineFlags(*drill, flags->cluster.serve);
  drill->callback([flags, &command] { command = [flags] { return Drill(*flags); }; });
}

}  // namespace stagecoach::cli
