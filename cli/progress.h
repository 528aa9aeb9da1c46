// A progress line on a terminal. Prints nothing if standard error is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace stagecoach::cli {

class Progress {
 public:
  explicit Progress(size_t n_requests);

  void Show(size_t n_done, uint64_t n_tokens);
  // Erases the line.
  void Clear();

 private:
  const size_t n_requests_;
  const bool on_terminal_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// "[#####.....]  50/100  123.4 tokens/s  1m40s left"
std::string ProgressLine(size_t n_done, size_t n_requests, uint64_t n_tokens,
                         std::chrono::duration<double> elapsed);

}  // namespace stagecoach::cli
