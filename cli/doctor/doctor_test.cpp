#include "cli/doctor/doctor.h"

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>

#include "cli/doctor/gpu_probes.h"
#include "cli/doctor/host_probes.h"
#include "common/numa.h"
#include "common/temp_dir.h"

namespace stagecoach::doctor {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("memory: a cgroup limit is respected, and too little memory is a problem") {
  TempDir root;
  root.Write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n");
  CHECK(ProbeMemory(root.path()).level == Level::kOk);
  CHECK(ProbeMemory(root.path()).found == "12.0 GiB available of 16.0 GiB");
  root.Write("proc/self/cgroup", "0::/box\n");
  root.Write("sys/fs/cgroup/memory.max", "2147483648\n");
  root.Write("sys/fs/cgroup/memory.current", "1073741824\n");
  Line line = ProbeMemory(root.path());
  CHECK(line.level == Level::kWarning);
  CHECK(line.found == "1.0 GiB available of 2.0 GiB that the cgroup allows");
  root.Write("sys/fs/cgroup/memory.current", "2147000000\n");
  CHECK(ProbeMemory(root.path()).level == Level::kProblem);
}

TEST_CASE("cores: a CPU quota smaller than the affinity mask throttles") {
  TempDir root;
  root.Write("proc/self/cgroup", "0::/\n");
  root.Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  CHECK(ProbeCores(root.path()).level == Level::kOk);
  root.Write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  const Line line = ProbeCores(root.path());
  CHECK(line.level == Level::kWarning);
  CHECK_THAT(line.found, ContainsSubstring("the CPU time of 0.5"));
  CHECK_THAT(line.advice, ContainsSubstring("--threads-per-worker 1 "));
}

TEST_CASE("cores: a cgroup v1 quota is read") {
  TempDir root;
  root.Write("proc/self/cgroup", "5:cpu,cpuacct:/box\n");
  root.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  root.Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(ProbeCores(root.path()).level == Level::kOk);
  root.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "25000\n");
  CHECK(ProbeCores(root.path()).level == Level::kWarning);
}

TEST_CASE("huge pages: 'never' is a warning, and many reserved pages are wasted memory") {
  TempDir root;
  const char* const path = "sys/kernel/mm/transparent_hugepage/enabled";
  CHECK(ProbeTransparentHugePages(root.path()).level == Level::kWarning);
  root.Write(path, "always [madvise] never\n");
  CHECK(ProbeTransparentHugePages(root.path()).level == Level::kOk);
  root.Write(path, "always madvise [never]\n");
  const Line line = ProbeTransparentHugePages(root.path());
  CHECK(line.level == Level::kWarning);
  CHECK_THAT(line.advice, ContainsSubstring("echo madvise > /sys/kernel"));

  root.Write("proc/meminfo", "HugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n");
  CHECK(ProbeReservedHugePages(root.path()).level == Level::kOk);
  root.Write("proc/meminfo",
             "HugePages_Total: 1024\nHugePages_Free: 1024\nHugepagesize: 2048 kB\n");
  CHECK(ProbeReservedHugePages(root.path()).level == Level::kWarning);
  CHECK_THAT(ProbeReservedHugePages(root.path()).advice, ContainsSubstring("2.0 GiB"));
}

TEST_CASE("NUMA: only nodes with cores count") {
  const cpu_set_t allowed = AllowedCores();
  int core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  const std::string cores = std::to_string(core) + "\n";
  TempDir root;
  root.Write("sys/devices/system/node/node0/cpulist", cores);
  root.Write("sys/devices/system/node/node2/cpulist", "\n");
  root.Write("sys/devices/system/node/possible", "0-2\n");
  CHECK(ProbeNumaNodes(root.path()).found == "1");
  root.Write("sys/devices/system/node/node1/cpulist", cores);
  CHECK(ProbeNumaNodes(root.path()).level == Level::kOk);
  CHECK_THAT(ProbeNumaNodes(root.path()).found, ContainsSubstring("2; with --stages 2"));
}

TEST_CASE("missing programs are a problem") {
  TempDir dir;
  dir.Write("stagecoach-router", "");
  std::filesystem::permissions(dir.File("stagecoach-router"), std::filesystem::perms::owner_all);
  const Line line = ProbePrograms(dir.path());
  CHECK(line.level == Level::kProblem);
  CHECK_THAT(line.found, ContainsSubstring("stagecoach-worker not in"));
}

TEST_CASE("the check asks for the driver that this build's CUDA needs") {
  CHECK(DriverAdvice(13000, 13000).empty());
  CHECK(DriverAdvice(13010, 13000).empty());
  CHECK_THAT(DriverAdvice(12080, 13000), ContainsSubstring("CUDA 13.0 needs driver 580"));
  CHECK(DriverAdvice(12080, 12080).empty());
  CHECK(DriverAdvice(12090, 12080).empty());
  CHECK(DriverAdvice(13000, 12080).empty());
  CHECK_THAT(DriverAdvice(12040, 12080),
             ContainsSubstring("CUDA 12.8 needs driver 570") && !ContainsSubstring("580"));
  // `built` 0: the workers may come from another build.
  CHECK(DriverAdvice(13000, 0).empty());
  CHECK_THAT(DriverAdvice(12080, 0),
             ContainsSubstring("580 or later; the images") && !ContainsSubstring("570"));
  CHECK_THAT(DriverAdvice(12040, 0), ContainsSubstring("570") && ContainsSubstring("580"));
}

TEST_CASE("a missing /dev/shm is a warning") {
  TempDir root;
  CHECK(ProbeSharedMemory(root.path()).level == Level::kWarning);
}

TEST_CASE("the verdict is that of the worst line") {
  std::vector<Line> lines{{Level::kOk, "cpu", "fast", ""}};
  CHECK(ToText(lines, 80) == "  ok       cpu  fast\nnothing to do: this machine can serve");
  lines.push_back({Level::kWarning, "memory", "little", "get more"});
  CHECK(CanServe(lines));
  CHECK(ToText(lines, 80) ==
        "  ok       cpu     fast\n"
        "  warning  memory  little\n"
        "                   get more\n"
        "1 warning: this machine can serve");
  lines.push_back({Level::kProblem, "loopback", "down", "bring it up"});
  CHECK_FALSE(CanServe(lines));
  CHECK_THAT(ToText(lines, 80),
             ContainsSubstring("1 problem and 1 warning: this machine cannot serve"));
  const boost::json::object json = ToJson(lines);
  CHECK_FALSE(json.at("ok").as_bool());
  CHECK(json.at("lines").at(2).at("level").as_string() == "problem");
}

}  // namespace
}  // namespace stagecoach::doctor
