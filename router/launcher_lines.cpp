#include "router/launcher_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <utility>

namespace stagecoach::router {

void LauncherLines::Say(const std::string& line) {
  const MutexLock lock(mutex_);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void LauncherLines::SetStalled(size_t pipeline, std::vector<std::string> addresses) {
  const MutexLock lock(mutex_);
  if (pipeline >= stalled_.size()) stalled_.resize(pipeline + 1);
  stalled_[pipeline] = std::move(addresses);
  std::string line = "stalled";
  for (const auto& of_one : stalled_) {
    for (const std::string& address : of_one) line += ' ' + address;
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void LauncherLines::AskToReplace(const std::vector<std::string>& addresses) {
  Say(fmt::format("replace {}", fmt::join(addresses, " ")));
}

void LauncherLines::SayRestored() { Say("restored"); }

void LauncherLines::AskToAdd(size_t replica) { Say(fmt::format("add {}", replica)); }

void LauncherLines::SayAdded(const std::vector<std::string>& addresses) {
  Say(fmt::format("added {}", fmt::join(addresses, " ")));
}

void LauncherLines::SayDrained(const std::vector<std::string>& addresses) {
  Say(fmt::format("drained {}", fmt::join(addresses, " ")));
}

}  // namespace stagecoach::router
