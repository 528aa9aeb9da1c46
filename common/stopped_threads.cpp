#include "common/stopped_threads.h"

#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/proc_file.h"

namespace stagecoach {
namespace {

// Fields of /proc/[pid]/stat after the name, counted from the state: see proc(5).
constexpr size_t kState = 0, kUserTicks = 11, kSystemTicks = 12;

// Returns false if the thread may run. `text`: "ID (NAME) STATE ...". The name may hold anything.
bool ReadStat(std::string_view text, StoppedThread& thread) {
  const size_t begin = text.find('('), end = text.rfind(") ");
  if (begin == std::string_view::npos || end == std::string_view::npos) return false;
  const std::vector<std::string> fields = absl::StrSplit(std::string(text.substr(end + 2)), ' ');
  if (fields.size() <= kSystemTicks) return false;
  if (fields[kState] != "t" && fields[kState] != "T" && fields[kState] != "D") return false;
  thread.name = text.substr(begin + 1, end - begin - 1);
  for (const size_t field : {kUserTicks, kSystemTicks}) {
    uint64_t ticks = 0;
    std::from_chars(fields[field].data(), fields[field].data() + fields[field].size(), ticks);
    thread.cpu_ticks += ticks;
  }
  return true;
}

}  // namespace

std::vector<StoppedThread> StoppedThreads() {
  std::vector<StoppedThread> stopped;
  std::error_code error;
  for (auto task = std::filesystem::directory_iterator("/proc/self/task", error);
       !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    StoppedThread thread;
    const std::optional<std::string> text = ReadFirstLine(task->path() / "stat");
    if (!text || !ReadStat(*text, thread)) continue;  // without text, it has just ended
    const std::string id = task->path().filename().string();
    std::from_chars(id.data(), id.data() + id.size(), thread.id);
    stopped.push_back(std::move(thread));
  }
  return stopped;
}

}  // namespace stagecoach
