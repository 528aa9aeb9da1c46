// How much memory this process may still use.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

struct HostMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;
};

// Returns MemTotal and MemAvailable of /proc/meminfo. If the limit of this process's cgroup (v1 or
// v2) is lower, returns that limit and the part of it that is still free. `root` replaces "/" in
// tests.
HostMemory ReadHostMemory(const std::string& root = "");

}  // namespace stagecoach
