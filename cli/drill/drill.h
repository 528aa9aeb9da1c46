// Runs the same streams without and with faults of their pipeline's stages, and compares them.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/bench/workload.h"

namespace stagecoach::drill {

enum class Fault : uint8_t {
  kKill,  // SIGKILL
  kStop   // SIGSTOP: the process is there and does nothing
};
// "kill", "stop"
const char* FaultName(Fault fault);

struct Plan {
  std::vector<Fault> faults;
  uint32_t n_stages = 1;
  uint32_t n_rounds = 1;  // of each fault on each stage
  // Beyond ten times the time of all streams without a fault: a stream that has not ended is hung,
  // and the router must serve again.
  std::chrono::seconds patience{180};
};

// What became of all streams in all rounds of one fault on one stage. Times in seconds.
struct Row {
  Fault fault = Fault::kKill;
  uint32_t stage = 0;
  size_t n_streams = 0;
  double running_share = 1;  // of the streams at the fault, in the round with the fewest
  // Each stream is one of these. An error is only an error if what came before it was right.
  size_t n_identical = 0, n_error = 0, n_hung = 0, n_different = 0;
  std::string first_error;
  // From the fault until the router's health service said that it does not serve, and that it
  // serves again; one entry per round.
  std::vector<double> noticed_s, recovered_s;
  // The longest pause between two messages of a stream from the fault on; one entry per stream that
  // ran.
  std::vector<double> silent_s;
};

struct Hooks {
  // Does it to the process of a stage. On any thread; must not wait.
  std::function<void(Fault fault, uint32_t stage)> inflict;
  std::function<void(const Row& row)> on_row;
};

// `channel`: to a router that serves nothing else. A fault comes when every stream has its first
// messages. An error: the streams fail or differ without a fault, end before it, or the router does
// not serve again; rows up to then have been reported. Blocks.
absl::Status RunDrill(const std::shared_ptr<grpc::Channel>& channel,
                      std::span<const bench::Request> requests, const Plan& plan,
                      const Hooks& hooks);

}  // namespace stagecoach::drill
