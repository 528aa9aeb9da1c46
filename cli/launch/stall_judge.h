// Decides whether a worker that the router finds stalled can be killed before its time limit.
//
// A stalled worker may only be slow: it computes, waits for a core on a machine with too much work,
// or for a disk. More time helps then. It does not help if the whole pipeline rests: if over some
// time no thread of the router or of a worker does anything or wants to. Nobody would ever wake the
// stalled worker, whether its process is stopped, a debugger holds a thread, or a thread waits for
// something that does not come. A router with a stopped thread is no witness: it may be the one
// that does not hear.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string_view>
#include <vector>

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
  // A thread may rest for a moment, between two pieces of work. So the pipeline must rest in this
  // many looks in a row.
  static constexpr int kLooks = 3;

  // The stages that the router finds stalled now; they replace the ones before.
  void SetStalled(std::vector<size_t> stages, Time now);
  // When to call Look; max: not before SetStalled.
  Time next_look() const { return next_look_; }
  // `rests`: no thread of the pipeline wants to run, and none of the router is stopped. Returns the
  // stages to kill, and forgets them.
  std::vector<size_t> Look(bool rests, Time now);

 private:
  std::vector<size_t> stalled_;
  Time next_look_ = Time::max();
  int n_rests_ = 0;  // looks in a row in which the pipeline rested
};

}  // namespace stagecoach::launch
