#include "cli/doctor/host_probes.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "common/cgroup.h"
#include "common/host_memory.h"
#include "common/numa.h"
#include "common/proc_file.h"
#include "common/size.h"
#include "kernels/cpu/cpu_target.h"

namespace stagecoach::doctor {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kLeastMemory = 256 * kMiB;  // enough for the demo model and its caches
constexpr uint64_t kLittleMemory = 4 * kGiB;
constexpr uint64_t kNcclSharedMemory = kGiB;
constexpr uint64_t kFewFiles = 4096;  // each connection uses one
constexpr uint64_t kTooFewFiles = 64;

// Reads "model name : Intel(R) Xeon(R)" in /proc/cpuinfo.
std::string CpuName(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    if (at != std::string::npos) return line.substr(at);
  }
  return "unnamed CPU";
}

int32_t CoresOfThisProcess() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
}

// CPU time that the cgroup allows, in cores; absent: no limit.
std::optional<double> CpuQuota(const std::string& root) {
  const CgroupDirs dirs = FindCgroupDirs(root, "cpu");
  for (const std::string& dir : dirs.v2) {
    std::ifstream file(dir + "/cpu.max");  // "max 100000" or "150000 100000"
    double quota_us = 0, period_us = 0;
    if (file >> quota_us >> period_us && period_us > 0) return quota_us / period_us;
  }
  for (const std::string& dir : dirs.v1) {
    std::ifstream quota(dir + "/cpu.cfs_quota_us"), period(dir + "/cpu.cfs_period_us");
    double quota_us = 0, period_us = 0;  // -1: no limit
    if (quota >> quota_us && period >> period_us && quota_us > 0 && period_us > 0) {
      return quota_us / period_us;
    }
  }
  return std::nullopt;
}

}  // namespace

Line ProbeCpu(const std::string& root) {
  const std::string target = kernels::ChooseCpuKernels().target;
  Line line{.name = "cpu", .found = fmt::format("{} kernels on {}", target, CpuName(root))};
  if (target == "baseline" || target == "SSE4") {
    line.level = Level::kWarning;
    line.advice =
        "without AVX2 everything is several times slower: use a newer machine, or make the virtual "
        "machine expose its host's CPU features";
  }
  return line;
}

Line ProbeCores(const std::string& root) {
  const int32_t n_cores = CoresOfThisProcess();
  Line line{.name = "cores", .found = fmt::format("{} for this process", n_cores)};
  const std::optional<double> quota = CpuQuota(root);
  if (quota && *quota < n_cores - 0.01) {
    line.level = Level::kWarning;
    line.found += fmt::format(", but the cgroup limits them to the CPU time of {:g}", *quota);
    line.advice = fmt::format(
        "more threads than that are throttled in the middle of a step: raise the limit (docker "
        "--cpus), or start with --threads-per-worker {} divided by the number of stages",
        std::max(1, static_cast<int32_t>(*quota)));
  }
  return line;
}

Line ProbeMemory(const std::string& root) {
  const HostMemory memory = ReadHostMemory(root);
  Line line{.name = "memory",
            .found = fmt::format("{} available of {}", FormatBytes(memory.available_bytes),
                                 FormatBytes(memory.total_bytes))};
  const uint64_t machine_bytes = ReadField(root + "/proc/meminfo", "MemTotal:").value_or(0) * 1024;
  if (memory.total_bytes < machine_bytes) line.found += " that the cgroup allows";
  if (memory.available_bytes < kLeastMemory) {
    line.level = Level::kProblem;
    line.advice = "no model fits: end other programs, or raise the container's limit";
  } else if (memory.available_bytes < kLittleMemory) {
    line.level = Level::kWarning;
    line.advice =
        "only small models fit (`stagecoach check MODEL` reports a model's memory): end other "
        "programs, or raise the container's limit";
  }
  return line;
}

Line ProbeTransparentHugePages(const std::string& root) {
  Line line{.name = "huge pages"};
  const std::string path = "/sys/kernel/mm/transparent_hugepage/enabled";
  const std::string modes = ReadFirstLine(root + path).value_or("");  // "always [madvise] never"
  const size_t begin = modes.find('['), end = modes.find(']');
  const bool known = begin != modes.npos && end != modes.npos && begin < end;
  const std::string mode = known ? modes.substr(begin + 1, end - begin - 1) : "none";
  line.found = fmt::format("transparent huge pages: {}", mode);
  if (mode != "always" && mode != "madvise") {
    line.level = Level::kWarning;
    line.advice =
        fmt::format("weights are read up to 20% slower; as root: echo madvise > {}", path);
  }
  return line;
}

Line ProbeReservedHugePages(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  const uint64_t n = ReadField(meminfo, "HugePages_Total:").value_or(0);
  const uint64_t n_free = ReadField(meminfo, "HugePages_Free:").value_or(0);
  const uint64_t page_bytes = ReadField(meminfo, "Hugepagesize:").value_or(2048) * 1024;
  Line line{.name = "reserved pages", .found = "no huge pages are reserved, none are needed"};
  if (n > 0) line.found = fmt::format("{} of {} each, {} free", n, FormatBytes(page_bytes), n_free);
  if (n_free * page_bytes >= kGiB) {
    line.level = Level::kWarning;
    line.advice = fmt::format(
        "{} of memory are reserved, but stagecoach does not use them; to free them, as root: "
        "sysctl vm.nr_hugepages=0",
        FormatBytes(n_free * page_bytes));
  }
  return line;
}

Line ProbeSharedMemory(const std::string& root) {
  Line line{.name = "/dev/shm"};
  struct statvfs stat{};
  if (statvfs((root + "/dev/shm").c_str(), &stat) != 0) {
    line.level = Level::kWarning;
    line.found = fmt::format("cannot be used: {}", std::strerror(errno));
    line.advice = "stages on GPUs of one machine communicate through it: mount a tmpfs there";
    return line;
  }
  const uint64_t total = uint64_t{stat.f_blocks} * stat.f_frsize;
  const uint64_t available = uint64_t{stat.f_bavail} * stat.f_frsize;
  line.found = fmt::format("{} free of {}", FormatBytes(available), FormatBytes(total));
  if (available < kNcclSharedMemory) {
    line.level = Level::kWarning;
    line.advice =
        "enough for CPUs, but little for NCCL between GPUs; in a container, use docker "
        "--shm-size=2g or an emptyDir with medium: Memory";
  }
  return line;
}

Line ProbeOpenFiles() {
  Line line{.name = "open files"};
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto text = [](rlim_t n) {
    return n == RLIM_INFINITY ? "unlimited" : fmt::format("{}", n);
  };
  line.found = fmt::format("{}, may be raised to {}", text(limit.rlim_cur), text(limit.rlim_max));
  if (limit.rlim_cur < kFewFiles) {
    line.level = limit.rlim_cur < kTooFewFiles ? Level::kProblem : Level::kWarning;
    const bool can_raise = limit.rlim_max >= kFewFiles;
    line.advice = fmt::format(
        "each client connection needs one: {}",
        can_raise ? fmt::format("ulimit -n {}", std::min<rlim_t>(limit.rlim_max, 65536))
                  : "raise the limit for this user (systemd: LimitNOFILE=65536, docker: --ulimit "
                    "nofile=65536, or /etc/security/limits.conf)");
  }
  return line;
}

Line ProbeNumaNodes(const std::string& root) {
  const size_t n_nodes = NumaNodes(root, AllowedCores()).size();
  Line line{.name = "NUMA nodes", .found = fmt::format("{}", std::max<size_t>(n_nodes, 1))};
  if (n_nodes > 1) {
    line.found += fmt::format(
        "; with --stages {} or a multiple, each stage gets the cores and memory of one", n_nodes);
  }
  return line;
}

Line ProbePrograms(const std::string& program_dir) {
  Line line{.name = "programs", .found = "all in " + program_dir};
  std::vector<std::string> missing;
  for (const char* name : {"stagecoach-worker", "stagecoach-router"}) {
    if (access((program_dir + "/" + name).c_str(), X_OK) != 0) missing.emplace_back(name);
  }
  if (!missing.empty()) {
    line.level = Level::kProblem;
    line.found = fmt::format("{} not in {}", fmt::join(missing, " and "), program_dir);
    line.advice =
        "build or install all of stagecoach: `serve` starts these programs from its own folder";
  }
  return line;
}

Line ProbeLoopback() {
  Line line{.name = "loopback", .found = "programs can listen on 127.0.0.1"};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, 1) != 0) {
    line.level = Level::kProblem;
    line.found = fmt::format("programs cannot listen on 127.0.0.1: {}", std::strerror(errno));
    line.advice =
        "stages on one machine communicate over it: bring the interface up (ip link set lo up)";
  }
  if (fd >= 0) close(fd);
  return line;
}

}  // namespace stagecoach::doctor
