#include "cli/launch/program_args.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "cli/launch/child_process.h"
#include "common/check.h"
#include "common/flags/flag_table.h"

namespace stagecoach::launch {
namespace {

// Replicas compute at the same time, so each has an equal share of the cores.
uint32_t CoresPerReplica(const ClusterOptions& options) {
  return std::max(1u, std::thread::hardware_concurrency() / options.serve.replicas);
}

// With few cores per stage, every stage uses all cores of its replica. A single request then has
// all of them on every stage. Many requests are decoded in one microbatch, so the weights are read
// only once.
bool SharesCores(const ClusterOptions& options) {
  constexpr uint32_t kFew = 4;
  return options.device == "cpu" && options.threads_per_worker == 0 && options.n_stages > 1 &&
         CoresPerReplica(options) < kFew * options.n_stages;
}

// If the workers divide evenly among the NUMA nodes, a worker's threads and memory are on one node.
std::optional<int> NumaNodeOf(uint32_t worker, const ClusterOptions& options) {
  const size_t n_nodes = options.numa_nodes.size();
  // Replicas that are added have no node of their own.
  if (worker >= options.n_workers()) return std::nullopt;
  if (options.device != "cpu" || n_nodes < 2 || options.n_workers() % n_nodes != 0 ||
      SharesCores(options)) {
    return std::nullopt;
  }
  return options.numa_nodes[worker / (options.n_workers() / n_nodes)];
}

uint32_t ThreadsPerWorker(const ClusterOptions& options) {
  if (options.threads_per_worker > 0) return options.threads_per_worker;
  const uint32_t n_cores = CoresPerReplica(options);
  return SharesCores(options) ? n_cores : std::max(1u, n_cores / options.n_stages);
}

// "cpu", or "cuda:N" where N is the worker's GPU.
std::string DeviceOf(const ClusterOptions& options, uint32_t worker) {
  if (options.device != "cuda") return options.device;
  return fmt::format("cuda:{}", options.devices.empty() ? worker : options.devices[worker]);
}

void Append(std::vector<std::string> more, std::vector<std::string>* args) {
  args->insert(args->end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

// GPU memory of a spare: its CUDA context, all kernels, and NCCL. 1.6 GiB were measured on an H100.
constexpr uint64_t kSpareBytes = uint64_t{2} << 30;

// A worker without links on a GPU takes no notice of their flags.
WorkerFlags FlagsOfWorkers(const ClusterOptions& options) {
  WorkerFlags flags = options.worker;
  if (options.device != "cuda" || options.n_stages < 2) flags.transport = {};
  if (options.device == "cuda") flags.reserved_bytes += options.n_spares * kSpareBytes;
  return flags;
}

std::vector<std::string> WithCommonArgs(const ClusterOptions& options,
                                        std::vector<std::string> args) {
  args.insert(args.end(),
              {"--log-level", options.log_level, "--exit-with-parent", std::to_string(getpid()),
               // Not an argument: every user of this machine can read arguments.
               "--secret-file", "/dev/stdin"});
  return args;
}

}  // namespace

std::string WorkerName(const ClusterOptions& options, uint32_t worker) {
  const uint32_t stage = worker % options.n_stages;
  if (options.serve.replicas == 1) return fmt::format("worker {}", stage);
  return fmt::format("replica {} worker {}", worker / options.n_stages, stage);
}

std::vector<std::string> WorkerArgs(const ClusterOptions& options, uint32_t worker) {
  std::vector<std::string> args{"--listen",  "127.0.0.1:0",
                                "--device",  DeviceOf(options, worker),
                                "--threads", fmt::format("{}", ThreadsPerWorker(options))};
  Append(ArgsOf(options.serve.observation, DeclareObservationFlags), &args);
  Append(ArgsOf(FlagsOfWorkers(options), DeclareWorkerFlags), &args);
  if (const std::optional<int> node = NumaNodeOf(worker, options)) {
    args.insert(args.end(), {"--numa-node", fmt::format("{}", *node)});
  }
  if (options.replaces_workers()) {
    args.insert(args.end(), {"--memory-store", fmt::format("{}", ChildProcess::kInheritedFd)});
  }
  return WithCommonArgs(options, std::move(args));
}

std::vector<std::string> SpareArgs(const std::vector<std::string>& worker_args) {
  SC_CHECK(worker_args[0] == "--listen");
  std::vector<std::string> args{"--spare"};
  args.insert(args.end(), worker_args.begin() + 2, worker_args.end());
  return args;
}

std::vector<std::string> RouterArgs(const ClusterOptions& options, const ServeFlags& given,
                                    const std::vector<std::string>& addresses) {
  std::vector<std::string> args{"--model", options.model, "--stages",
                                fmt::format("{}", fmt::join(addresses, ","))};
  ServeFlags serve = given;
  if (serve.microbatches == 0 && SharesCores(options)) serve.microbatches = 1;
  Append(ToArgs(serve), &args);
  if (!serve.control.empty()) {
    args.insert(args.end(), {"--launcher-socket", fmt::format("{}", ChildProcess::kInheritedFd)});
  }
  return WithCommonArgs(options, std::move(args));
}

}  // namespace stagecoach::launch
