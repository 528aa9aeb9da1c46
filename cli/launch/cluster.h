// The local launcher: runs one worker program per stage and a router, as children of this process.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/launch/child_log.h"
#include "cli/launch/child_process.h"
#include "cli/launch/memory_place.h"
#include "cli/launch/spare_pool.h"
#include "common/closable_queue.h"
#include "common/flags/serve_flags.h"
#include "common/flags/worker_flags.h"
#include "common/mutex.h"

namespace stagecoach::launch {

struct ClusterOptions {
  std::string program_dir;  // holds stagecoach-worker and stagecoach-router
  std::string model;
  uint32_t n_stages = 1;
  std::string device = "cpu";
  std::vector<uint32_t> devices;  // GPU of each stage; empty: stage i uses GPU i
  WorkerFlags worker;             // passed on to every worker
  uint32_t n_spares = 0;          // workers that wait for a place, per device
  // 0: an equal share of the cores, or all cores if there are fewer than four per stage.
  uint32_t threads_per_worker = 0;
  // NUMA nodes of this machine. If the stages divide evenly among them, each stage runs on one
  // node.
  std::vector<int> numa_nodes;
  std::string log_level = "info";
  bool echo_logs = true;  // forward the children's logs to our standard error
  ServeFlags serve;       // passed on to the router; the workers get `observation`

  LogFormat log_format() const {
    return serve.observation.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  }
};

struct Endpoints {
  std::string ready_line;  // the router's line: "ready grpc=... metrics=... kv_blocks=N"
  std::string grpc;        // HOST:PORT; empty: gRPC is off
};

// Call Start, then Wait, on the same thread. That thread must live as long as the cluster, because
// the children are killed when it ends.
class Cluster {
 public:
  explicit Cluster(ClusterOptions options);
  // Kills and reaps all children.
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Returns when requests can be served. CANCELLED after RequestStop. Any other error's message
  // gives the one root cause.
  absl::StatusOr<Endpoints> Start();
  // Replaces workers that die, at the same address, for the router to use. Returns when all
  // children have ended: OK after RequestStop; an error that gives the root cause if the router
  // ended or a worker dies again and again; CANCELLED if a second RequestStop cut the first one
  // short.
  absl::Status Wait();
  // Lets the router finish the running requests, then stops the workers. A second call kills all
  // children. Thread-safe.
  void RequestStop();
  // Makes all children write their flight recorders to files, once the cluster serves. Thread-safe.
  void RequestFlight();

 private:
  using Clock = std::chrono::steady_clock;

  struct Event {
    enum Kind { kLine, kExit, kStop, kFlight, kStopped, kTimeout } kind;
    size_t child = 0;
    std::string line;
  };
  struct Child {
    ChildSpec spec;  // of the process that runs, or of its replacement
    std::unique_ptr<ChildLog> log;
    std::unique_ptr<ChildProcess> process;
    std::optional<ChildExit> exit;
    // Time since which the process is stopped (SIGSTOP). This is no failure by itself: whoever
    // stopped it may continue it.
    std::optional<Clock::time_point> stopped_since;
    std::vector<Clock::time_point> deaths;  // the last ones
    std::unique_ptr<MemoryPlace> memory;    // of workers that are replaced; null: none
  };

  bool ReplacesWorkers() const { return options_.serve.recovery_limit.count() > 0; }
  absl::Status SpawnWorkers();
  absl::Status SpawnRouter(const std::vector<std::string>& stages);
  absl::Status Add(const std::string& name, const std::string& program,
                   std::vector<std::string> args);
  // Starts the child's program.
  absl::Status Spawn(size_t index);
  ChildCallbacks CallbacksOf(size_t index);
  // Starts as many spares as are missing. A failure is logged: the cluster works without them.
  void FillSpares();
  // A spare for this worker's place. Null: none waits.
  std::unique_ptr<ChildProcess> TakeSpare(size_t index);
  // Whether a worker that died may be replaced.
  bool MayReplace(size_t index);
  absl::Status Replace(size_t index);
  // Kills the worker at this address, so that it is replaced.
  void KillWorkerAt(std::string_view address);
  // For each child from index `first` on, the first line of its standard output that begins with
  // `prefix`.
  absl::StatusOr<std::vector<std::string>> AwaitLines(size_t first, const std::string& prefix);

  void OnStopped(size_t index, bool stopped);
  void Post(Event event);
  Event NextEvent(Clock::time_point deadline = Clock::time_point::max());
  bool AllEnded(size_t first, size_t last) const;
  // A child of [first, last) has been stopped for longer than the launcher waits.
  bool IsHeldUp(size_t first, size_t last) const;
  enum class Awaited : uint8_t { kEnded, kHeldUp, kStop, kTimeout };
  // Waits until one of these happens: the children [first, last) have all ended, one of them is
  // stopped and does not continue, a stop is requested, or `deadline` passes.
  Awaited AwaitEnd(size_t first, size_t last, Clock::time_point deadline);
  void SignalAll(size_t first, size_t last, int signal);

  // Stops the other children after the unexpected end of `dead`, and returns the root cause.
  absl::Status Fail(size_t dead);
  absl::Status StopInOrder();
  void KillAll();

  size_t router() const { return options_.n_stages; }

  const ClusterOptions options_;
  // New for each start; the router authenticates to its workers with it.
  const std::string secret_;
  std::vector<std::string> addresses_;  // of the workers, once they listen
  std::vector<Child> children_;         // workers by stage, then the router
  ChildLog spare_log_;
  // By their arguments, which are those of the workers that they can replace.
  std::map<std::vector<std::string>, std::unique_ptr<SparePool>> spares_;
  Mutex mutex_;
  ClosableQueue<Event> events_;  // never closed
};

}  // namespace stagecoach::launch
