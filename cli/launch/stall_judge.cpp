#include "cli/launch/stall_judge.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "common/proc_file.h"

namespace stagecoach::launch {

bool HasThreadIn(std::string_view states, pid_t pid) {
  std::error_code error;
  auto task = std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error);
  for (; !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    const std::optional<std::string> stat = ReadFirstLine(task->path() / "stat");
    if (!stat) continue;  // the thread has just ended
    // "ID (NAME) STATE ...", and the name may hold anything: see proc(5).
    const size_t name_end = stat->rfind(") ");
    if (name_end == std::string::npos) return true;
    if (states.find(stat->at(name_end + 2)) != std::string_view::npos) return true;
  }
  return static_cast<bool>(error);
}

void StallJudge::SetStalled(std::vector<size_t> stages, Time now) {
  if (stages.empty()) {
    next_look_ = Time::max();
    n_rests_ = 0;
  } else if (stalled_.empty()) {
    next_look_ = now;
  }
  stalled_ = std::move(stages);
}

std::vector<size_t> StallJudge::Look(bool rests, Time now) {
  next_look_ = now + kInterval;
  n_rests_ = rests ? n_rests_ + 1 : 0;
  if (n_rests_ < kLooks) return {};
  std::vector<size_t> certain = std::exchange(stalled_, {});
  SetStalled({}, now);
  return certain;
}

}  // namespace stagecoach::launch
