#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "cli/batch_runner.h"
#include "cli/command.h"
#include "cli/grpc_client.h"
#include "cli/progress.h"
#include "common/flags/checks.h"

namespace stagecoach::cli {
namespace {

struct BatchFlags {
  Connection connection;
  std::string file;
  size_t concurrency = 256;
};

std::vector<BatchInput> ReadLines(std::istream& file) {
  std::vector<BatchInput> lines;
  size_t index = 0;
  for (std::string line; std::getline(file, line); ++index) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back({.index = index, .text = std::move(line)});
  }
  return lines;
}

int Batch(const BatchFlags& options) {
  std::ifstream file(options.file);
  if (options.file != "-" && !file.is_open()) {
    fmt::print(stderr, "error: cannot read {}\n", options.file);
    return kExitError;
  }
  std::vector<BatchInput> lines = ReadLines(options.file == "-" ? std::cin : file);
  const absl::StatusOr<std::unique_ptr<GrpcClient>> client = GrpcClient::Make(options.connection);
  const absl::StatusOr<v1::Model> model = client.ok() ? (*client)->GetModel() : client.status();
  if (!model.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(model.status().message()));
    return kExitError;
  }

  const size_t n_lines = lines.size();
  Progress progress(n_lines);
  BatchRunner runner(**client, model->id(), std::move(lines), options.concurrency);
  const size_t n_failed = runner.Run(
      [&](const std::string& result) {
        progress.Clear();
        fmt::print("{}\n", result);
      },
      [&](size_t n_done, uint64_t n_tokens) {
        std::fflush(stdout);
        progress.Show(n_done, n_tokens);
      });
  progress.Clear();
  if (n_failed == 0) return kExitOk;
  fmt::print(stderr, "error: {} of {} requests failed; see \"error\" in their results\n", n_failed,
             n_lines);
  return kExitError;
}

}  // namespace

void AddBatch(CLI::App& app, Command& command) {
  auto options = std::make_shared<BatchFlags>();
  CLI::App* batch = app.add_subcommand(
      "batch",
      "Runs a file of requests. Each line of the file is a JSON object with \"prompt\", "
      "\"prompt_ids\" or \"messages\", and with sampling fields as the protocol names them. The "
      "command prints one line per result, in the order of the input. A result has \"index\" (the "
      "line's number in the file, from 0), the line's \"id\" or \"custom_id\", and the fields of "
      "`generate --json` or \"error\". Lines in OpenAI's batch format (custom_id, method, url, "
      "body) get results in OpenAI's format");
  batch->add_option("file", options->file, "File with one request per line. -: standard input")
      ->type_name("FILE.jsonl")
      ->required();
  AddConnectionFlags(*batch, options->connection);
  batch->add_option("--concurrency", options->concurrency, "Maximum number of requests in flight")
      ->type_name("N")
      ->check(MoreThanZero())
      ->capture_default_str();
  batch->callback([options, &command] { command = [options] { return Batch(*options); }; });
}

}  // namespace stagecoach::cli
