#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "cli/batch_runner.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/progress.h"

namespace stagecoach::cli {
namespace {

struct Options {
  std::string server = kDefaultServer;
  std::string file;
  size_t concurrency = 256;
};

std::vector<std::string> ReadLines(std::istream& file) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(std::move(line));
  }
  return lines;
}

int Batch(const Options& options) {
  std::ifstream file(options.file);
  if (options.file != "-" && !file.is_open()) {
    fmt::print(stderr, "error: cannot read {}\n", options.file);
    return kExitError;
  }
  std::vector<std::string> lines = ReadLines(options.file == "-" ? std::cin : file);
  const Client client(options.server);
  if (const absl::Status status = client.GetModel().status(); !status.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(status.message()));
    return kExitError;
  }

  const size_t n_lines = lines.size();
  Progress progress(n_lines);
  BatchRunner runner(client, std::move(lines), options.concurrency);
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
  auto options = std::make_shared<Options>();
  CLI::App* batch = app.add_subcommand(
      "batch",
      "Runs a file of requests. Each line is a JSON object with \"prompt\", \"prompt_ids\" or "
      "\"messages\", and sampling fields as the protocol names them. Each result is a line on "
      "standard output, in input order: what `generate --json` prints, with \"index\", or "
      "\"index\" "
      "and \"error\"");
  batch->add_option("file", options->file, "Requests, one a line; -: standard input")
      ->type_name("FILE.jsonl")
      ->required();
  batch->add_option("--server", options->server, "Router to ask")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  batch->add_option("--concurrency", options->concurrency, "Requests sent at the same time")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  batch->callback([options, &command] { command = [options] { return Batch(*options); }; });
}

}  // namespace stagecoach::cli
