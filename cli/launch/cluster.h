// The local launcher: one worker program a stage and a router in front, as children of this
// process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/launch/child_log.h"
#include "cli/launch/child_process.h"
#include "common/closable_queue.h"
#include "common/flags/serve_flags.h"
#include "common/mutex.h"

namespace stagecoach::launch {

struct ClusterOptions {
  std::string program_dir;  // holds stagecoach-worker and stagecoach-router
  std::string model;
  uint32_t n_stages = 1;
  std::string device = "cpu";
  std::vector<uint32_t> devices;             // GPU of each stage; empty: stage i has GPU i
  bool batch_invariant = false;              // on GPUs; CPUs always are
  std::string transport = "auto";            // between stages on GPUs, as the next four
  std::string nccl_library, nccl_interface;  // empty: the default
  std::vector<std::string> nccl_settings;    // "NCCL_NAME=VALUE"
  uint32_t link_timeout_s = 20;
  uint64_t disturbance_seed = 0;    // on GPUs; 0: off. Tests shake the order of things with it.
  uint32_t threads_per_worker = 0;  // 0: all cores where they are few, else a share
  std::vector<int> numa_nodes;  // ids of this machine's; each stage gets one if that comes out even
  std::string log_level = "info";
  bool echo_logs = true;  // the children's logs go to our standard error
  ServeFlags serve;

  LogFormat log_format() const {
    return serve.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  }
};

struct Endpoints {
  std::string ready_line;  // the router's own: "ready grpc=... metrics=... kv_blocks=N"
  std::string grpc;        // HOST:PORT; empty: it is off
};

// Start, then Wait, on one thread that lives as long as the cluster: the children die with it.
class Cluster {
 public:
  explicit Cluster(ClusterOptions options);
  // Leaves no child behind.
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Returns when requests can be served. CANCELLED after RequestStop; otherwise an error's message
  // is the one cause.
  absl::StatusOr<Endpoints> Start();
  // Returns when all children have ended: OK after RequestStop, an error with the one cause when a
  // child died. CANCELLED when a second RequestStop cut the first one short.
  absl::Status Wait();
  // Lets the router finish what runs, then stops the workers. Called again: kills everything.
  // Thread-safe.
  void RequestStop();
  // Has all write what their flight recorders hold, once they serve. Thread-safe.
  void RequestFlight();

 private:
  using Clock = std::chrono::steady_clock;

  struct Event {
    enum Kind { kLine, kExit, kStop, kFlight, kStopped, kTimeout } kind;
    size_t child = 0;
    std::string line;
  };
  struct Child {
    std::unique_ptr<ChildLog> log;
    std::unique_ptr<ChildProcess> process;
    std::optional<ChildExit> exit;
    // Not a loss by itself: who stopped it may let it go on.
    std::optional<Clock::time_point> stopped_since;
  };

  absl::Status SpawnWorkers();
  absl::Status SpawnRouter(const std::vector<std::string>& stages);
  absl::Status Spawn(const std::string& name, const std::string& program,
                     std::vector<std::string> args);
  // The first line on the standard output of each child from `first` on that begins with `prefix`.
  absl::StatusOr<std::vector<std::string>> AwaitLines(size_t first, const std::string& prefix);

  void OnStopped(size_t index, bool stopped);
  void Post(Event event);
  Event NextEvent(Clock::time_point deadline = Clock::time_point::max());
  bool AllEnded(size_t first, size_t last) const;
  // A child of [first, last) has been stopped for so long that nobody waits for it any more.
  bool IsHeldUp(size_t first, size_t last) const;
  enum class Awaited : uint8_t { kEnded, kHeldUp, kStop, kTimeout };
  // Waits until the children [first, last) have ended, or what else comes first: one is stopped and
  // does not go on, a stop request, `deadline`.
  Awaited AwaitEnd(size_t first, size_t last, Clock::time_point deadline);
  void SignalAll(size_t first, size_t last, int signal);

  // Ends all that runs after the unexpected end of `dead`, and says what caused it.
  absl::Status Fail(size_t dead);
  absl::Status StopInOrder();
  void KillAll();

  size_t router() const { return options_.n_stages; }

  const ClusterOptions options_;
  const std::string secret_;     // of this start: between its router and workers
  std::vector<Child> children_;  // workers by stage, then the router
  Mutex mutex_;
  ClosableQueue<Event> events_;  // never closed
};

}  // namespace stagecoach::launch
