// A child process: started with posix_spawn, its output read line by line, always reaped.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"

namespace stagecoach::launch {

struct ChildSpec {
  std::string program;            // a path
  std::vector<std::string> args;  // without the program's own name
  // Variables "NAME=VALUE" in place of ours with these names; it gets all others of ours, too.
  std::vector<std::string> environment;
  std::string input;      // its standard input, at most 4 KiB
  int inherited_fd = -1;  // the child gets a copy as kInheritedFd; -1: none
};

struct ChildExit {
  int code = 0;    // when signal is 0
  int signal = 0;  // that killed the process; 0: it exited by itself

  bool Clean() const { return code == 0 && signal == 0; }
  // "exited with code 1", "was killed by signal 9 (Killed)"
  std::string Describe() const;
};

// The callbacks run on the child's own reader thread. on_stopped: the process was stopped (for
// example by SIGSTOP), or continued. on_exit comes last, when both streams have ended and the
// process is reaped. Lines come without their line feed.
struct ChildCallbacks {
  std::function<void(std::string_view)> on_stdout;
  std::function<void(std::string_view)> on_stderr;
  std::function<void(const ChildExit&)> on_exit;
  std::function<void(bool stopped)> on_stopped;
};

// The child has its own process group (a terminal's ctrl-C does not reach it), only the standard
// input and the descriptor given in its spec, default signal dispositions and no other of our
// descriptors. Thread-safe.
class ChildProcess {
 public:
  static constexpr int kInheritedFd = 3;

  // NOT_FOUND or INTERNAL if the program cannot be executed. A child that asks to be killed when
  // its parent dies is killed when the *thread* that calls Spawn ends.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(const ChildSpec& spec,
                                                             ChildCallbacks callbacks);
  // Kills the child if it is running, and reaps it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // No effect once the child has ended.
  void Signal(int signal);

 private:
  ChildProcess(pid_t pid, int stdout_fd, int stderr_fd, ChildCallbacks callbacks);
  void ReadUntilExit();
  void TellStops();

  const pid_t pid_;
  int stdout_fd_;
  int stderr_fd_;
  const ChildCallbacks callbacks_;
  Mutex mutex_;
  // Once true, pid_ may belong to another process.
  bool reaped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reader_;
};

}  // namespace stagecoach::launch
