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
    kLatency,     // batches of random.n_requests, one after the other, `repeat` times
    kThroughput,  // all random.n_requests at once
    kServe        // random.n_requests at request_rate, at most `concurrency` at a time
  };
  explicit BenchOptions(Mode mode);

  Mode mode;
  ServerChoice server;
  bench::RandomWorkload random;
  std::string file;         // requests in the format of `batch`, instead of random ones
  size_t concurrency = 0;   // 0: no limit
  double request_rate = 0;  // requests per second; 0: no limit
  uint32_t repeat = 1;      // measured runs
  uint32_t warmup = 0;      // runs before the measured ones
  bool json = false;
};

// The defaults are the values in `options`.
void AddBenchFlags(CLI::App& app, BenchOptions& options);

}  // namespace stagecoach::cli
