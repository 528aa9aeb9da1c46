// A line in the log every ten seconds: tokens per second, requests, KV cache.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "router/scheduler/scheduler.h"

namespace stagecoach::router {

// Describes the `seconds` between two snapshots in one line. Empty: no token was computed, and no
// request waits.
std::string ThroughputLine(const SchedulerSnapshot& before, const SchedulerSnapshot& now,
                           double seconds);

// Logs such lines from its own thread, from construction to destruction.
class ThroughputLog {
 public:
  // nullopt: the scheduler does not answer; the next interval is then longer.
  using Read = std::function<std::optional<SchedulerSnapshot>()>;
  using Say = std::function<void(const std::string& line)>;

  // `read` and `say` are called on the thread. `say` gets no empty line.
  ThroughputLog(Read read, Say say, std::chrono::milliseconds interval);
  // Asks `scheduler`, which outlives it, and logs at the level info.
  explicit ThroughputLog(Scheduler* scheduler);
  ThroughputLog(const ThroughputLog&) = delete;
  ThroughputLog& operator=(const ThroughputLog&) = delete;

 private:
  void Run(const std::stop_token& ending);

  const Read read_;
  const Say say_;
  const std::chrono::milliseconds interval_;
  std::jthread thread_;  // last: uses all above
};

}  // namespace stagecoach::router
