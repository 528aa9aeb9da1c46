#include "common/numa.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <span>

#include "common/proc_file.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

// Parses all of `text` as a number. Returns -1 if that fails.
int ToNumber(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

// Parses a list such as "0-3,8,10-11" and keeps the cores in `allowed`.
std::vector<int> CoresOf(std::string_view list, const cpu_set_t& allowed) {
  std::vector<int> cores;
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), range.size() + 1));
    const size_t dash = range.find('-');
    const int first = ToNumber(range.substr(0, dash));
    const int last = dash == range.npos ? first : ToNumber(range.substr(dash + 1));
    for (int core = std::max(first, 0); core <= std::min(last, CPU_SETSIZE - 1); ++core) {
      if (CPU_ISSET(core, &allowed)) cores.push_back(core);
    }
  }
  return cores;
}

// glibc has no wrapper for this call, and libnuma would be a dependency for one call.
absl::Status SetMemoryPolicy(int mode, std::span<const NumaNode> nodes) {
  constexpr int kBits = 8 * sizeof(unsigned long);
  constexpr int kMaxNodes = 1024;  // the most that the kernel can be built for
  unsigned long mask[kMaxNodes / kBits] = {};
  for (const NumaNode& node : nodes) {
    if (node.id < kMaxNodes) mask[node.id / kBits] |= 1ul << (node.id % kBits);
  }
  if (syscall(SYS_set_mempolicy, mode, mask, kMaxNodes) == 0) return absl::OkStatus();
  const int error = errno;
  const std::string message = fmt::format("cannot place memory: {}", std::strerror(error));
  return error == EPERM || error == ENOSYS ? absl::PermissionDeniedError(message)
                                           : absl::InternalError(message);
}

}  // namespace

cpu_set_t AllowedCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) {
    CPU_ZERO(&cores);
    CPU_SET(0, &cores);
  }
  return cores;
}

std::vector<NumaNode> NumaNodes(const std::string& root, const cpu_set_t& allowed) {
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    NumaNode node{.id = ToNumber(std::string_view(name).substr(4)), .cores = {}};
    if (node.id < 0) continue;
    node.cores = CoresOf(ReadFirstLine(entry.path() / "cpulist").value_or(""), allowed);
    if (!node.cores.empty()) nodes.push_back(std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
  return nodes;
}

std::vector<NumaNode> NumaNodes() { return NumaNodes("", AllowedCores()); }

absl::Status BindToNumaNode(const NumaNode& node) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : node.cores) CPU_SET(core, &cores);
  if (sched_setaffinity(0, sizeof cores, &cores) != 0) {
    return absl::InternalError(
        fmt::format("cannot run on the cores of NUMA node {}: {}", node.id, std::strerror(errno)));
  }
  return SetMemoryPolicy(MPOL_PREFERRED, std::span(&node, 1));
}

absl::Status InterleaveMemory(const std::vector<NumaNode>& nodes) {
  return SetMemoryPolicy(MPOL_INTERLEAVE, nodes);
}

}  // namespace stagecoach
