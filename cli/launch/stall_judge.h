// Decides whether a worker that the router finds stalled can be killed before its time limit.
//
// A stalled worker may only be slow: it computes, waits for a core on a machine with too much work,
// or for a disk. More time helps then. It does not help if nothing that could wake the worker does
// anything or wants to, over some time. Nobody would ever wake it, whether its process is stopped,
// a debugger holds a thread, or a thread waits for something that does not come.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"

namespace stagecoach::launch {

// Whether a thread of the process is in one of these states of proc(5). Reads /proc: about 10 us
// per thread. True if the process cannot be looked at.
bool HasThreadIn(std::string_view states, pid_t pid);
// Running or waiting for a core; waiting in the kernel for a disk or another device.
inline constexpr std::string_view kWantsToRun = "RD";
inline constexpr std::string_view kIsStopped = "Tt";

// The caller provides the clock. Not thread-safe.
class StallJudge {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr auto kInterval = std::chrono::milliseconds(100);
  // A thread may rest for a moment, between two pieces of work. So all must rest in this many looks
  // in a row.
  static constexpr int kLooks = 3;
  // Looks with rest for a stage about which the judge may have been wrong: 10 seconds.
  static constexpr int kDoubtedLooks = 100;

  // The stages that the router finds stalled now; they replace the ones before.
  void SetStalled(const std::vector<size_t>& stages, Time now);
  // Another process has the stage now.
  void Forget(size_t stage);
  // When to call Look; max: not before SetStalled.
  Time next_look() const { return next_look_; }
  using Question = absl::FunctionRef<bool(size_t stage)>;
  // `rests`: whether nothing that could wake this stage wants to run. `is_doubted`: whether the
  // judge has often had this stage killed. Returns the stages to kill, and forgets them.
  std::vector<size_t> Look(Question rests, Question is_doubted, Time now);

 private:
  std::map<size_t, int> n_rests_;  // by stalled stage: looks in a row with rest
  Time next_look_ = Time::max();
};

}  // namespace stagecoach::launch
