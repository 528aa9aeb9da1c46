// Handles ctrl-C and SIGTERM for a command that prints results before it ends.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

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
  // Before this call, the first signal also ends the process. The first signal after it calls
  // `then` (may be null), on another thread. Call it once.
  void NoteFirst(std::function<void()> then = nullptr) {
    then_ = std::move(then);
    notes_first_ = true;
  }

 private:
  ShutdownSignals signals_;
  std::atomic<int> signal_{0};
  std::function<void()> then_;  // constant once notes_first_ is true
  std::atomic<bool> notes_first_{false};
  std::thread watcher_;  // last member: the thread uses all others
};

}  // namespace stagecoach::cli
