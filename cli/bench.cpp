#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/batch_line.h"
#include "cli/bench/load_runner.h"
#include "cli/bench/report.h"
#include "cli/bench_flags.h"
#include "cli/command.h"
#include "cli/grpc_client.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "common/json_text.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

using Mode = BenchOptions::Mode;

absl::StatusOr<std::vector<bench::Request>> ReadRequests(const std::string& path, size_t n) {
  std::ifstream file(path);
  std::vector<bench::Request> in_file;
  size_t n_lines = 0;
  for (std::string line; in_file.size() < n && std::getline(file, line);) {
    ++n_lines;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<BatchLine> request = ParseBatchLine(line);
    if (!request.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("{}, line {}: {}", path, n_lines, std::string(request.status().message())));
    }
    in_file.push_back(std::move(request->request));
  }
  if (in_file.empty()) return absl::InvalidArgumentError(path + ": it contains no requests");
  std::vector<bench::Request> requests;
  for (size_t i = 0; i < n; ++i) requests.push_back(in_file[i % in_file.size()]);
  return requests;
}

// Each run uses other prompts, so that a later run does not hit the prefix cache.
absl::StatusOr<std::vector<bench::Request>> MakeRequests(const BenchOptions& options,
                                                         const v1::Model& model, uint64_t run) {
  if (!options.file.empty()) return ReadRequests(options.file, options.random.n_requests);
  bench::RandomWorkload random = options.random;
  random.vocab_size = model.vocab_size();
  random.seed += run;
  return bench::RandomRequests(random);
}

boost::json::object DescribeLoad(const BenchOptions& options, const v1::Model& model) {
  constexpr const char* kModes[] = {"latency", "throughput", "serve"};
  boost::json::object load{{"mode", kModes[static_cast<int>(options.mode)]},
                           {"model", model.id()},
                           {"dtype", model.dtype()},
                           {"kv_dtype", model.kv_dtype()},
                           {"hidden_dtype", model.hidden_dtype()},
                           {"stages", model.stages_size()},
                           {"requests", options.random.n_requests},
                           {"repeat", options.repeat},
                           {"seed", options.random.seed}};
  if (options.mode == Mode::kServe) {
    load["concurrency"] = options.concurrency;
    load["request_rate"] = options.request_rate;
  }
  if (!options.file.empty()) {
    load["file"] = options.file;
  } else {
    load["input_tokens"] = options.random.input_tokens;
    load["output_tokens"] = options.random.output_tokens;
    load["spread"] = options.random.spread;
    load["prefix_tokens"] = options.random.prefix_tokens;
    load["prefixes"] = options.random.n_prefixes;
  }
  return load;
}

// From here on the first signal does not end the process: results measured before it are still
// printed.
absl::Status Run(const BenchOptions& options, const Connection& connection, Interrupt& interrupt) {
  interrupt.NoteFirst();
  SC_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcClient> client, GrpcClient::Make(connection));
  const absl::StatusOr<v1::Model> model = client->GetModel();
  if (!model.ok()) return model.status();

  const uint32_t n_runs = options.warmup + options.repeat;
  const size_t n_per_run = options.random.n_requests;
  Progress progress(n_runs * n_per_run);
  std::vector<bench::LoadResult> results;
  uint64_t n_tokens_before = 0;
  for (uint32_t run = 0; run < n_runs && interrupt.signal() == 0; ++run) {
    const absl::StatusOr<std::vector<bench::Request>> requests = MakeRequests(options, *model, run);
    if (!requests.ok()) return requests.status();
    const bench::Load load{.concurrency = options.concurrency,
                           .request_rate = options.request_rate,
                           .seed = options.random.seed + run,
                           .stopped = [&interrupt] { return interrupt.signal() != 0; }};
    uint64_t n_tokens_of_run = 0;
    bench::LoadResult result =
        bench::RunLoad(client->stub(), *requests, load, [&](size_t n_done, uint64_t n_tokens) {
          n_tokens_of_run = n_tokens;
          progress.Show(run * n_per_run + n_done, n_tokens_before + n_tokens);
        });
    n_tokens_before += n_tokens_of_run;
    if (run >= options.warmup) results.push_back(std::move(result));
  }
  progress.Clear();

  const bench::Report report = bench::Summarize(results);
  if (interrupt.signal() != 0) {
    fmt::print(stderr, "interrupted: {} of {} requests had ended\n", report.n_ok + report.n_failed,
               options.repeat * n_per_run);
  }
  if (options.json) {
    boost::json::object json{{"load", DescribeLoad(options, *model)}};
    for (auto& [key, value] : bench::ToJson(report)) json[key] = std::move(value);
    fmt::print("{}\n", JsonText(json));
  } else {
    fmt::print("{}", bench::ToTable(report));
  }
  if (report.n_failed == 0) return absl::OkStatus();
  return absl::UnknownError(
      fmt::format("{} requests failed; the first: {}", report.n_failed, report.first_error));
}

int Bench(const BenchOptions& options) {
  Interrupt interrupt;  // before gRPC starts its threads
  const absl::Status status = WithServer(options.server, [&](const Connection& connection) {
    return Run(options, connection, interrupt);
  });
  if (interrupt.signal() != 0) return kExitBySignal + interrupt.signal();
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "error: {}\n", std::string(status.message()));
  return kExitError;
}

void AddMode(CLI::App& bench, const char* name, Mode mode, const char* help, Command& command) {
  auto options = std::make_shared<BenchOptions>(mode);
  CLI::App* app = bench.add_subcommand(name, help);
  AddBenchFlags(*app, *options);
  app->callback([options, &command] { command = [options] { return Bench(*options); }; });
}

}  // namespace

void AddBench(CLI::App& app, Command& command) {
  CLI::App* bench = app.add_subcommand(
      "bench",
      "Measures a running server, or one that is started for this command: throughput, time to "
      "first token (TTFT), time between tokens (ITL, TPOT), time to the end (E2E)");
  bench->require_subcommand(1);
  AddMode(*bench, "latency", Mode::kLatency, "Sends one batch of requests, several times", command);
  AddMode(*bench, "throughput", Mode::kThroughput, "Sends all requests at once", command);
  AddMode(*bench, "serve", Mode::kServe, "Sends requests at a given rate or concurrency", command);
}

}  // namespace stagecoach::cli
