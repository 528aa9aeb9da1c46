#include "cli/bench_flags.h"

#include <CLI/CLI.hpp>

#include "common/flags/checks.h"
#include "common/flags/serve_flags.h"

namespace stagecoach::cli {
namespace {

using Mode = BenchOptions::Mode;

template <typename T>
CLI::Option* AddCount(CLI::App& app, const char* name, T& value, const char* help) {
  return app.add_option(name, value, help)
      ->type_name("N")
      ->check(MoreThanZero())
      ->capture_default_str();
}

void AddWorkloadFlags(CLI::App& app, BenchOptions& options) {
  bench::RandomWorkload& random = options.random;
  CLI::Option* file =
      app.add_option("--file", options.file,
                     "File with the requests, one per line in the format of `stagecoach batch`. If "
                     "it has too few, they are sent again (default: random token ids)")
          ->type_name("FILE.jsonl")
          ->check(CLI::ExistingFile);
  AddCount(app, "--input-tokens", random.input_tokens, "Number of tokens of each random prompt")
      ->excludes(file);
  AddCount(app, "--output-tokens", random.output_tokens, "Number of tokens of each answer")
      ->excludes(file);
  app.add_option("--spread", random.spread,
                 "Vary both lengths. Each is drawn uniformly between the given value minus and "
                 "plus this share of it")
      ->type_name("0..1")
      ->check(Between(0.0, 1.0))
      ->excludes(file)
      ->capture_default_str();
  app.add_option("--prefix-tokens", random.prefix_tokens,
                 "Number of tokens at the start of each random prompt that other prompts share")
      ->type_name("N")
      ->excludes(file)
      ->capture_default_str();
  AddCount(app, "--prefixes", random.n_prefixes, "Number of different shared prefixes")
      ->excludes(file);
  app.add_option("--seed", random.seed, "Seed for random prompts and arrival times")
      ->type_name("N")
      ->capture_default_str();
}

void AddLoadFlags(CLI::App& app, BenchOptions& options) {
  if (options.mode == Mode::kLatency) {
    AddCount(app, "--batch-size", options.random.n_requests,
             "Number of requests sent at the same time");
  } else {
    AddCount(app, "--requests", options.random.n_requests, "Number of requests");
  }
  if (options.mode == Mode::kServe) {
    app.add_option(
           "--request-rate", options.request_rate,
           "Mean number of requests per second, with random arrivals (Poisson). 0: no limit")
        ->type_name("R")
        ->check(ZeroOrMore())
        ->capture_default_str();
    app.add_option("--concurrency", options.concurrency,
                   "Maximum number of requests in flight. 0: no limit")
        ->type_name("N")
        ->capture_default_str();
  }
  AddCount(app, "--repeat", options.repeat, "Number of measured runs, one after the other");
  app.add_option("--warmup", options.warmup, "Number of runs before the measured ones")
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace

BenchOptions::BenchOptions(Mode mode) : mode(mode) {
  switch (mode) {
    case Mode::kLatency:
      repeat = 5;
      warmup = 1;
      break;
    case Mode::kThroughput:
      random.n_requests = 256;
      break;
    case Mode::kServe:
      random.n_requests = 256;
      concurrency = 16;
      break;
  }
}

void AddBenchFlags(CLI::App& app, BenchOptions& options) {
  AddLoadFlags(app, options);
  AddWorkloadFlags(app, options);
  app.add_flag("--json", options.json, "Print one JSON object instead of a table");
  AddServerFlags(app, options.server);
  AddPipelineFlags(app, options.server.cluster.serve);
}

}  // namespace stagecoach::cli
