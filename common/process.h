// What every program of the house does with signals and with its parent.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <string>

namespace stagecoach {

// Ties this process's life to that of `parent`, which started it: SIGKILL when the parent's thread
// that did so ends. Exits at once if it is gone already.
void ExitWithParent(pid_t parent);

// Lets this process have as many open files as it may: gRPC 1.51 never accepts a connection again
// once there was no room for one.
void RaiseFileLimit();

// Debian builds Abseil with its checks, and gRPC locks Abseil's mutexes: without this call every
// lock of the process enters its order into one global graph, under one spin lock. Call it first
// thing in a program that serves.
void StopTrackingLockOrder();

// Takes SIGTERM and SIGINT out of their asynchronous life: construct one first thing in main,
// before any thread, and Wait() for them where it suits. SIGPIPE is ignored as well: a vanished
// peer is an error code, not a death. One in a process at a time.
class ShutdownSignals {
 public:
  // Takes `other`, if it is not 0, along with them.
  explicit ShutdownSignals(int other = 0);
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // The second SIGTERM or SIGINT of the process ends it with kExitBySignal and its number, after
  // `grace` (whole seconds; 0: at once), whatever holds the process up, and whichever of its
  // threads: the signals have two threads of their own.
  void SecondEnds(std::chrono::seconds grace = {});

  // Blocks until a signal (returned) or Interrupt() (returns 0).
  int Wait();
  // Ends a Wait() from another thread.
  void Interrupt();
};

// What a program ends with that a signal ends at once, as a shell reports it: and the signal's
// number.
inline constexpr int kExitBySignal = 128;

// From a thread of its own: a process that has not ended after `grace` says "error: WHY" and exits
// with code 1. For ends that may be held up.
void EndWithin(std::chrono::seconds grace, std::string why);

}  // namespace stagecoach
