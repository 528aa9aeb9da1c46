// Handles ctrl-C and SIGTERM for a command that prints results before it ends.
#pragma once

#include <atomic>
#include <thread>

#include "common/process.h"

namespace stagecoach::cli {

// Construct it before any thread starts. After NoteFirst(), the first signal is only recorded and a
// second one ends the process at once.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The recorded signal; 0: none yet. Thread-safe.
  int signal() const { return signal_; }
  // Before this call, the first signal also ends the process. Thread-safe.
  void NoteFirst() { notes_first_ = true; }

 private:
  ShutdownSignals signals_;
  std::atomic<int> signal_{0};
  std::atomic<bool> notes_first_{false};
  std::thread watcher_;  // last member: the thread uses all others
};

}  // namespace stagecoach::cli
