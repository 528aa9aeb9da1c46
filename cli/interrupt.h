// ctrl-C and SIGTERM for a command that has something to say before it ends.
#pragma once

#include <atomic>
#include <thread>

#include "common/process.h"

namespace stagecoach::cli {

// Construct it before any thread starts. The first signal is only noted; a second one ends the
// process at once.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // 0: none has come. Thread-safe.
  int signal() const { return signal_; }
  // Until it is called the first signal ends the process too. Thread-safe.
  void NoteFirst() { notes_first_ = true; }

 private:
  ShutdownSignals signals_;
  std::atomic<int> signal_{0};
  std::atomic<bool> notes_first_{false};
  std::thread watcher_;  // last: uses all above
};

}  // namespace stagecoach::cli
