#include "common/host_memory.h"

#include <algorithm>
#include <optional>

#include "common/cgroup.h"
#include "common/proc_file.h"

namespace stagecoach {
namespace {

void Limit(HostMemory& memory, const std::string& limit_file, const std::string& usage_file,
           const std::string& stat_file, const std::string& reclaimable_field) {
  const std::optional<uint64_t> limit = ReadNumber(limit_file);
  const std::optional<uint64_t> usage = ReadNumber(usage_file);
  if (!limit || !usage || *limit >= memory.total_bytes) return;
  // The kernel counts page cache as used but reclaims it under pressure. A checkpoint that was just
  // read must not look like used memory.
  const uint64_t reclaimable =
      std::min(*usage, ReadField(stat_file, reclaimable_field).value_or(0));
  const uint64_t used = *usage - reclaimable;
  memory.total_bytes = *limit;
  memory.available_bytes = std::min(memory.available_bytes, *limit > used ? *limit - used : 0);
}

}  // namespace

HostMemory ReadHostMemory(const std::string& root) {
  constexpr uint64_t kKiB = 1024;
  const std::string meminfo = root + "/proc/meminfo";
  HostMemory memory;
  memory.total_bytes = ReadField(meminfo, "MemTotal:").value_or(0) * kKiB;
  memory.available_bytes = ReadField(meminfo, "MemAvailable:").value_or(0) * kKiB;

  const CgroupDirs dirs = FindCgroupDirs(root, "memory");
  for (const std::string& v2 : dirs.v2) {
    Limit(memory, v2 + "/memory.max", v2 + "/memory.current", v2 + "/memory.stat", "inactive_file");
  }
  for (const std::string& v1 : dirs.v1) {
    Limit(memory, v1 + "/memory.limit_in_bytes", v1 + "/memory.usage_in_bytes", v1 + "/memory.stat",
          "total_inactive_file");
  }
  return memory;
}

}  // namespace stagecoach
