#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace stagecoach::cli {
namespace {

constexpr size_t kBarCells = 24;

}  // namespace

Progress::Progress(size_t n_requests)
    : n_requests_(n_requests), on_terminal_(isatty(STDERR_FILENO)) {}

void Progress::Show(size_t n_done, uint64_t n_tokens) {
  if (!on_terminal_) return;
  fmt::print(
      stderr, "\r{}\x1b[K",
      ProgressLine(n_done, n_requests_, n_tokens, std::chrono::steady_clock::now() - start_));
}

void Progress::Clear() {
  if (on_terminal_) fmt::print(stderr, "\r\x1b[K");
}

std::string ProgressLine(size_t n_done, size_t n_requests, uint64_t n_tokens,
                         std::chrono::duration<double> elapsed) {
  const size_t filled = kBarCells * n_done / std::max<size_t>(n_requests, 1);
  std::string line =
      fmt::format("[{:#<{}}{:.<{}}]  {}/{}  {:.1f} tokens/s", "", filled, "", kBarCells - filled,
                  n_done, n_requests, n_tokens / std::max(elapsed.count(), 1e-3));
  if (n_done > 0 && n_done < n_requests) {
    const auto left_s = static_cast<uint64_t>(elapsed.count() / n_done * (n_requests - n_done));
    line += fmt::format("  {}m{:02}s left", left_s / 60, left_s % 60);
  }
  return line;
}

}  // namespace stagecoach::cli
