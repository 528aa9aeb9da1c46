#include "router/launcher_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <utility>

namespace stagecoach::router {

void LauncherLines::SetStalled(size_t pipeline, std::vector<std::string> addresses) {
  const MutexLock lock(mutex_);
  stalled_[pipeline] = std::move(addresses);
  std::string line = "stalled";
  for (const auto& of_one : stalled_) {
    for (const std::string& address : of_one) line += ' ' + address;
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void LauncherLines::AskToReplace(const std::vector<std::string>& addresses) {
  const MutexLock lock(mutex_);
  fmt::print("replace {}\n", fmt::join(addresses, " "));
  std::fflush(stdout);
}

void LauncherLines::SayRestored() {
  const MutexLock lock(mutex_);
  fmt::print("restored\n");
  std::fflush(stdout);
}

}  // namespace stagecoach::router
