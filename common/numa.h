// Memory placement on machines with several NUMA nodes (sockets). A core reads its own node's
// memory at full speed and another node's memory at about half.
#pragma once

#include <sched.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace stagecoach {

struct NumaNode {
  int id = 0;              // the kernel's number; numbers may have gaps
  std::vector<int> cores;  // cores that this process may use, ascending; never empty
};

// Returns the cores that the calling thread may run on.
cpu_set_t AllowedCores();

// Returns the nodes that have cores among `allowed`, sorted by id. Nodes with memory but no cores
// (CXL, high-bandwidth memory) are left out. Empty if the kernel exposes no nodes. `root` replaces
// "/" in tests.
std::vector<NumaNode> NumaNodes(const std::string& root, const cpu_set_t& allowed);
std::vector<NumaNode> NumaNodes();

// Binds the calling thread, and threads that it starts later, to the node's cores. Pages that these
// threads touch first are placed in the node's memory while it has room. PERMISSION_DENIED if a
// container forbids memory policies: the cores are bound anyway, and the kernel's default policy
// places pages near the core that touches them first.
absl::Status BindToNumaNode(const NumaNode& node);

// Spreads pages that the calling thread, or threads that it starts later, touch first over all
// nodes in turn. Memory that many threads read is then equally far from each of them.
absl::Status InterleaveMemory(const std::vector<NumaNode>& nodes);

}  // namespace stagecoach
