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
                     "Send these requests, one a line as `stagecoach batch` takes them, again from "
                     "the first when there are too few; default: random token ids")
          ->type_name("FILE.jsonl")
          ->check(CLI::ExistingFile);
  AddCount(app, "--input-tokens", random.input_tokens, "Tokens of a random prompt")->excludes(file);
  AddCount(app, "--output-tokens", random.output_tokens, "Tokens of an answer")->excludes(file);
  app.add_option("--spread", random.spread,
                 "Draw both lengths uniformly from within this share of them, up and down")
      ->type_name("0..1")
      ->check(Between(0.0, 1.0))
      ->excludes(file)
      ->capture_default_str();
  app.add_option("--prefix-tokens", random.prefix_tokens,
                 "Tokens at a random prompt's beginning that it shares with others")
      ->type_name("N")
      ->excludes(file)
      ->capture_default_str();
  AddCount(app, "--prefixes", random.n_prefixes, "How many different such beginnings")
      ->excludes(file);
  app.add_option("--seed", random.seed, "Of random prompts and of arrivals")
      ->type_name("N")
      ->capture_default_str();
}

void AddLoadFlags(CLI::App& app, BenchOptions& options) {
  if (options.mode == Mode::kLatency) {
    AddCount(app, "--batch-size", options.random.n_requests, "Requests sent together");
  } else {
    AddCount(app, "--requests", options.random.n_requests, "Requests in all");
  }
  if (options.mode == Mode::kServe) {
    app.add_option("--request-rate", options.request_rate,
                   "Mean requests a second, arriving at random (Poisson); 0: no limit")
        ->type_name("R")
        ->check(ZeroOrMore())
        ->capture_default_str();
    app.add_option("--concurrency", options.concurrency,
                   "Requests under way at the same time, at most; 0: no limit")
        ->type_name("N")
        ->capture_default_str();
  }
  AddCount(app, "--repeat", options.repeat, "Runs that count, one after the other");
  app.add_option("--warmup", options.warmup, "Runs before, which do not count")
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
  AddServeFlags(app, options.server.cluster.serve);
  for (const char* of_serve :
       {"--grpc", "--metrics", "--served-name", "--http", "--api-keys", "--tls-cert", "--tls-key",
        "--cors", "--http-max-body", "--http-max-header", "--http-max-connections",
        "--http-timeout", "--sse-keep-alive-interval", "--resume-time", "--resume-memory",
        "--resume-streams"}) {
    app.remove_option(app.get_option(of_serve));
  }
}

}  // namespace stagecoach::cli
