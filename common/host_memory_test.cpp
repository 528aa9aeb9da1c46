#include "common/host_memory.h"

#include <catch2/catch_test_macros.hpp>

#include "common/temp_dir.h"

namespace stagecoach {
namespace {

class FakeRoot : public TempDir {
 public:
  FakeRoot() {
    Write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\n");
  }
};

TEST_CASE("without a cgroup limit, the machine's memory counts") {
  FakeRoot root;
  root.Write("proc/self/cgroup", "0::/\n");
  root.Write("sys/fs/cgroup/memory.max", "max\n");
  root.Write("sys/fs/cgroup/memory.current", "5\n");
  const HostMemory memory = ReadHostMemory(root.path());
  CHECK(memory.total_bytes == 1000 * 1024);
  CHECK(memory.available_bytes == 600 * 1024);
}

TEST_CASE("a lower cgroup limit counts, and its page cache is free memory") {
  FakeRoot root;
  SECTION("v2, the process's own path") {
    root.Write("proc/self/cgroup", "0::/pod/a\n");
    root.Write("sys/fs/cgroup/pod/a/memory.max", "400000\n");
    root.Write("sys/fs/cgroup/pod/a/memory.current", "150000\n");
    root.Write("sys/fs/cgroup/pod/a/memory.stat", "anon 100000\ninactive_file 50000\n");
  }
  SECTION("v2, a container's root") {
    root.Write("proc/self/cgroup", "0::/pod/a\n");
    root.Write("sys/fs/cgroup/memory.max", "400000\n");
    root.Write("sys/fs/cgroup/memory.current", "150000\n");
    root.Write("sys/fs/cgroup/memory.stat", "anon 100000\ninactive_file 50000\n");
  }
  SECTION("v1") {
    root.Write("proc/self/cgroup", "4:cpu:/x\n7:memory:/pod/a\n0::/\n");
    root.Write("sys/fs/cgroup/memory/pod/a/memory.limit_in_bytes", "400000\n");
    root.Write("sys/fs/cgroup/memory/pod/a/memory.usage_in_bytes", "150000\n");
    root.Write("sys/fs/cgroup/memory/pod/a/memory.stat", "total_inactive_file 50000\n");
  }
  const HostMemory memory = ReadHostMemory(root.path());
  CHECK(memory.total_bytes == 400000);
  CHECK(memory.available_bytes == 300000);
}

TEST_CASE("this machine reports its memory") {
  const HostMemory memory = ReadHostMemory();
  CHECK(memory.available_bytes > 0);
  CHECK(memory.total_bytes >= memory.available_bytes);
}

}  // namespace
}  // namespace stagecoach
