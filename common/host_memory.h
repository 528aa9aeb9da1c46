// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

struct HostMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;
};

// /proc/meminfo's MemTotal and MemAvailable, or this process's cgroup (v1 or v2) limit and what is
// left of it where that is less. `root` stands in for "/" in tests.
HostMemory ReadHostMemory(const std::string& root = "");

}  // namespace stagecoach
