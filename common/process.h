// Handling of signals and of the parent process, shared by all programs of this project.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <string>

namespace stagecoach {

// Ties this process's life to `parent`, the process that started it: this process gets SIGKILL when
// the parent's thread that started it ends. Exits at once if the parent is already gone.
void ExitWithParent(pid_t parent);

// Raises the limit of open files to the allowed maximum. If gRPC 1.51 once fails to accept a
// connection because no file descriptor is free, it never accepts one again.
void RaiseFileLimit();

// Turns off Abseil's lock-order tracking. Debian builds Abseil with its debug checks on, and gRPC
// uses Abseil's mutexes: without this call, every lock operation of the process updates one global
// graph under one spin lock. Call it first in a server program.
void StopTrackingLockOrder();

// Turns SIGTERM and SIGINT into events that Wait() returns. Construct one object first in main,
// before any thread starts. Also ignores SIGPIPE, so that a lost peer gives an error code instead
// of ending the process. At most one object may exist per process.
class ShutdownSignals {
 public:
  // Also handles the signal `other`, unless it is 0.
  explicit ShutdownSignals(int other = 0);
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // After this call, a second SIGTERM or SIGINT ends the process with exit code kExitBySignal plus
  // the signal's number, after `grace` (whole seconds; 0: at once). This works even if all other
  // threads are stuck: two threads exist only for signals.
  void SecondEnds(std::chrono::seconds grace = {});

  // Blocks until a signal arrives (returns its number) or Interrupt() is called (returns 0).
  int Wait();
  // Ends a Wait() from another thread.
  void Interrupt();
};

// Exit code of a program that a signal ends at once is this plus the signal's number, as shells
// report it.
inline constexpr int kExitBySignal = 128;

// Starts a thread that waits for `grace`. If the process has not ended by then, it reports `why`
// (LogFatal) and exits with code 1. For a shutdown that may get stuck.
void EndWithin(std::chrono::seconds grace, std::string why);

}  // namespace stagecoach
