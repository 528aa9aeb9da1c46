#include "common/numa.h"

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "common/temp_dir.h"

namespace stagecoach {
namespace {

cpu_set_t Cores(int first, int last) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int core = first; core <= last; ++core) CPU_SET(core, &cores);
  return cores;
}

TEST_CASE("only nodes with usable cores count") {
  TempDir root;
  CHECK(NumaNodes(root.path(), Cores(0, 31)).empty());
  root.Write("sys/devices/system/node/node10/cpulist", "8-11,24-27\n");
  root.Write("sys/devices/system/node/node2/cpulist", "0-3,9,16-19\n");
  root.Write("sys/devices/system/node/node3/cpulist", "\n");         // a node with memory only
  root.Write("sys/devices/system/node/node4/cpulist", "100-120\n");  // cores of another container
  root.Write("sys/devices/system/node/node5/cpulist", "what?\n");
  root.Write("sys/devices/system/node/nodes/cpulist", "0-3\n");
  root.Write("sys/devices/system/node/possible", "0-10\n");
  const std::vector<NumaNode> nodes = NumaNodes(root.path(), Cores(2, 25));
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].id == 2);
  CHECK(nodes[0].cores == std::vector<int>{2, 3, 9, 16, 17, 18, 19});
  CHECK(nodes[1].id == 10);
  CHECK(nodes[1].cores == std::vector<int>{8, 9, 10, 11, 24, 25});
}

TEST_CASE("a bound thread runs only on its node's cores") {
  const cpu_set_t all = AllowedCores();
  int core = 0;
  while (!CPU_ISSET(core, &all)) ++core;
  cpu_set_t seen;
  absl::Status status;
  std::thread([&] {
    status = BindToNumaNode({.id = 0, .cores = {core}});
    std::thread([&] { seen = AllowedCores(); }).join();
  }).join();
  CHECK((status.ok() || absl::IsPermissionDenied(status)));
  CHECK(CPU_COUNT(&seen) == 1);
  CHECK(CPU_ISSET(core, &seen));
  const cpu_set_t after = AllowedCores();
  CHECK(CPU_EQUAL(&after, &all));
}

TEST_CASE("memory is interleaved over this machine's nodes") {
  absl::Status status;
  std::thread([&] {
    const std::vector<NumaNode> nodes = NumaNodes();
    if (!nodes.empty()) status = InterleaveMemory(nodes);
  }).join();
  CHECK((status.ok() || absl::IsPermissionDenied(status)));
}

}  // namespace
}  // namespace stagecoach
