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

void StallJudge::SetStalled(const std::vector<size_t>& stages, Time now) {
  const std::map<size_t, int> before = std::exchange(n_rests_, {});
  for (const size_t stage : stages) {
    const auto found = before.find(stage);
    n_rests_[stage] = found == before.end() ? 0 : found->second;
  }
  if (n_rests_.empty()) {
    next_look_ = Time::max();
  } else if (before.empty()) {
    next_look_ = now;
  }
}

void StallJudge::Forget(size_t stage) {
  n_rests_.erase(stage);
  if (n_rests_.empty()) next_look_ = Time::max();
}

std::vector<size_t> StallJudge::Look(Question rests, Question is_doubted, Time now) {
  std::vector<size_t> certain;
  for (auto& [stage, n_rests] : n_rests_) {
    n_rests = rests(stage) ? n_rests + 1 : 0;
    if (n_rests >= kLooks && (n_rests >= kDoubtedLooks || !is_doubted(stage))) {
      certain.push_back(stage);
    }
  }
  for (const size_t stage : certain) n_rests_.erase(stage);
  next_look_ = n_rests_.empty() ? Time::max() : now + kInterval;
  return certain;
}

}  // namespace stagecoach::launch
