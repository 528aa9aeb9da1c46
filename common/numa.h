// Memory of machines with several NUMA nodes (sockets): cores read their own node's at full speed,
// another's at about half.
#pragma once

#include <sched.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace stagecoach {

struct NumaNode {
  int id = 0;              // as the kernel counts them; there may be gaps
  std::vector<int> cores;  // those that may be used, ascending; never empty
};

// The cores that the calling thread may run on.
cpu_set_t AllowedCores();

// Nodes with cores among `allowed`, by id; memory without cores (CXL, high-bandwidth memory) is
// left out. Empty where the kernel says nothing of nodes. `root` stands in for "/" in tests.
std::vector<NumaNode> NumaNodes(const std::string& root, const cpu_set_t& allowed);
std::vector<NumaNode> NumaNodes();

// The calling thread and those it starts from now on run on the node's cores, and pages that they
// are first to write lie in its memory, while there is room. PERMISSION_DENIED where a container
// forbids placing memory: cores are bound nevertheless, and memory follows them by the kernel's
// own rule.
absl::Status BindToNumaNode(const NumaNode& node);

// Pages that the calling thread and those it starts are first to write lie on all nodes in turn:
// what many threads read is equally far from each.
absl::Status InterleaveMemory(const std::vector<NumaNode>& nodes);

}  // namespace stagecoach
