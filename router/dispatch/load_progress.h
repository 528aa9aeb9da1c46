// Shows the load progress of all stages together.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"

namespace stagecoach::router {

// "loading [#######             ]  35%  1.2 GiB of 3.4 GiB  2 stages"
std::string ProgressLine(uint64_t bytes_done, uint64_t bytes_total, size_t n_stages);

// Draws a progress bar on a terminal; otherwise writes a log line every few seconds. Thread-safe.
class LoadProgressDisplay {
 public:
  LoadProgressDisplay(size_t n_stages, bool is_terminal);
  ~LoadProgressDisplay();  // ends the bar's line

  void Update(size_t stage, uint64_t bytes_done, uint64_t bytes_total);

 private:
  struct Progress {
    uint64_t done = 0;
    uint64_t total = 0;
  };

  void Run();
  void Show(uint64_t done, uint64_t total);
  Progress Sum();

  const size_t n_stages_;
  const bool is_terminal_;
  bool shown_ = false;  // used by the display's thread, then by the destructor
  Mutex mutex_;
  CondVar changed_;
  std::vector<Progress> stages_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace stagecoach::router
