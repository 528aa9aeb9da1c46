// The flags of one mode of `stagecoach bench`.
#pragma once

#include <cstdint>
#include <string>

#include "cli/bench/workload.h"
#include "cli/own_server.h"

namespace CLI {
class App;
}

namespace stagecoach::cli {

struct BenchOptions {
  enum class Mode {
    kLatency,     // one batch of random.n_requests after the other, `repeat` times
    kThroughput,  // all of random.n_requests at once
    kServe        // random.n_requests, at a rate or so many at a time
  };
  explicit BenchOptions(Mode mode);

  Mode mode;
  ServerChoice server;
  bench::RandomWorkload random;
  std::string file;         // requests as `batch` takes them, in place of random ones
  size_t concurrency = 0;   // 0: no limit
  double request_rate = 0;  // requests a second; 0: no limit
  uint32_t repeat = 1;      // runs that count
  uint32_t warmup = 0;      // runs before
  bool json = false;
};

// Defaults are what `options` holds.
void AddBenchFlags(CLI::App& app, BenchOptions& options);

}  // namespace stagecoach::cli
