#include "worker/service/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stagecoach::worker {
namespace {

// The number after "name" in a file of "name value" lines.
std::optional<uint64_t> Field(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  for (std::string line; file >> word;) {
    if (word == name && file >> value) return value;
    file.clear();
    std::getline(file, line);
  }
  return std::nullopt;
}

// A file that holds one number; "max" (no limit) is nothing.
std::optional<uint64_t> Number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

void Limit(HostMemory& memory, const std::string& limit_file, const std::string& usage_file,
           const std::string& stat_file, const std::string& reclaimable_field) {
  const std::optional<uint64_t> limit = Number(limit_file);
  const std::optional<uint64_t> usage = Number(usage_file);
  if (!limit || !usage || *limit >= memory.total_bytes) return;
  // Page cache counts as used but gives way: a checkpoint just read must not look like memory
  // taken.
  const uint64_t reclaimable = std::min(*usage, Field(stat_file, reclaimable_field).value_or(0));
  const uint64_t used = *usage - reclaimable;
  memory.total_bytes = *limit;
  memory.available_bytes = std::min(memory.available_bytes, *limit > used ? *limit - used : 0);
}

// Path of this process's cgroup in hierarchy "0" (v2) or of the memory controller (v1); empty:
// none.
std::string CgroupPath(const std::string& root, bool v2) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool matches = v2 ? controllers.empty() : absl::StrContains(controllers, "memory");
    if (matches) return line.substr(second + 1);
  }
  return "";
}

}  // namespace

HostMemory ReadHostMemory(const std::string& root) {
  constexpr uint64_t kKiB = 1024;
  const std::string meminfo = root + "/proc/meminfo";
  HostMemory memory;
  memory.total_bytes = Field(meminfo, "MemTotal:").value_or(0) * kKiB;
  memory.available_bytes = Field(meminfo, "MemAvailable:").value_or(0) * kKiB;

  // In a container the process's own path is not mounted: the limit is at the mount's root.
  for (const std::string& path : {CgroupPath(root, true), std::string("/")}) {
    const std::string v2 = absl::StrCat(root, "/sys/fs/cgroup", path);
    Limit(memory, v2 + "/memory.max", v2 + "/memory.current", v2 + "/memory.stat", "inactive_file");
  }
  for (const std::string& path : {CgroupPath(root, false), std::string("/")}) {
    const std::string v1 = absl::StrCat(root, "/sys/fs/cgroup/memory", path);
    Limit(memory, v1 + "/memory.limit_in_bytes", v1 + "/memory.usage_in_bytes", v1 + "/memory.stat",
          "total_inactive_file");
  }
  return memory;
}

}  // namespace stagecoach::worker
