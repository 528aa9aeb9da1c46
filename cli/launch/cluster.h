// The local launcher: runs one worker program per stage of each replica and a router, as children
// of this process. The router may ask for another replica's workers, and release those of one.
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
#include "cli/launch/cluster_options.h"
#include "cli/launch/memory_place.h"
#include "cli/launch/spare_pool.h"
#include "cli/launch/stall_judge.h"
#include "common/closable_queue.h"
#include "common/mutex.h"
#include "common/unique_fd.h"

namespace stagecoach::launch {

struct Endpoints {
  std::string ready_line;  // the router's line: "ready grpc=... metrics=... kv_blocks=N"
  std::string grpc;        // HOST:PORT; empty: gRPC is off
  std::string http;        // HOST:PORT; empty: HTTP is off
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
  // Replaces workers that die, at the same address, for the router to use, and with a journal a
  // router that is killed, at the same addresses. Returns when all children have ended: OK after
  // RequestStop; an error that gives the root cause if the router ended by itself, or if it or a
  // worker of every replica dies again and again; CANCELLED if a second RequestStop cut the first
  // one short.
  absl::Status Wait();
  // Lets the router finish the running requests, then stops the workers. A second call kills all
  // children. Thread-safe.
  void RequestStop();
  // Makes all children write their flight recorders to files, once the cluster serves. Thread-safe.
  void RequestFlight();
  // Sends a signal to the process of a stage, once the cluster serves. Thread-safe.
  void RequestSignal(size_t stage, int signal);

 private:
  using Clock = std::chrono::steady_clock;

  struct Event {
    enum Kind { kLine, kExit, kStop, kFlight, kSignal, kStopped, kTimeout } kind;
    size_t child = 0;
    std::string line;
    int signal = 0;
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
    std::vector<Clock::time_point> kills;   // the last ones for a stall that seemed certain
    std::unique_ptr<MemoryPlace> memory;    // of workers that are replaced; null: none
    bool is_given_up = false;               // not started again: it died too often, or is released
    bool is_released = false;               // the router does not need it any more
  };
  // Workers that the router asked for, until it has their addresses.
  struct NewReplica {
    uint32_t number = 0;               // the router's
    std::optional<size_t> first = {};  // child; absent: it is not started yet
  };

  absl::Status SpawnWorkers();
  absl::Status SpawnRouter();
  // A router that takes this one's place will listen where this one does.
  absl::Status KeepAddresses(const std::string& ready_line);
  absl::Status Add(const std::string& name, const std::string& program,
                   std::vector<std::string> args);
  // Starts the child's program.
  absl::Status Spawn(size_t index);
  ChildCallbacks CallbacksOf(size_t index);
  // Starts as many spares as are missing. A failure is logged: the cluster works without them.
  void FillSpares();
  // A spare for this worker's place. Null: none waits.
  std::unique_ptr<ChildProcess> TakeSpare(size_t index);
  // The first worker of each replica that was not released.
  std::vector<size_t> Replicas() const;
  size_t FirstOfReplica(size_t index) const;
  // The router asked for a replica, and the workers in whose place it comes have ended.
  void StartNewReplica();
  // A worker without an address listens now, or has ended.
  void OnNewWorker(const Event& event);
  void FailNewReplica(const absl::Status& why);
  void AnswerRouter(const std::string& text);
  // Ends a worker that the router does not need any more.
  void Release(size_t index);
  // Whether this worker has not listened yet, or is released.
  bool HasNoAddress(size_t index) const { return index != router() && addresses_[index].empty(); }
  // What a router that takes this one's place must know.
  void UpdateRouterArgs();
  // Whether another process may take the place of one that ended.
  bool MayReplace(size_t index);
  // Does not start a worker again. Returns whether another replica is complete, so that the router
  // goes on.
  bool GiveUp(size_t index);
  // Whether the router serves, or another one is about to take its place.
  bool RouterGoesOn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Replace(size_t index);
  // Carries out what the router asks for in a line of its standard output.
  void Obey(const std::string& line);
  // Kills the stalled workers that nothing will wake, so that they are replaced.
  void LookAtStalled();
  // Whether nothing wants to run now that could wake this worker.
  bool NothingWakes(size_t stage) const;
  // The stages whose workers listen at these addresses.
  std::vector<size_t> StagesAt(const std::string& addresses) const;
  void Kill(size_t stage, const std::string& why);
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

  size_t router() const { return options_.n_workers(); }

  const ClusterOptions options_;
  // New for each start; the router authenticates to its workers with it.
  const std::string secret_;
  ServeFlags bound_;                    // with the addresses where the router listens
  std::vector<std::string> addresses_;  // by child: of the workers that listen; others are empty
  // Workers by replica and stage, then the router, then the workers of replicas that were added.
  std::vector<Child> children_;
  std::vector<uint32_t> places_;  // by replica, in the order of children_: its cores and GPUs
  std::optional<NewReplica> new_replica_;
  UniqueFd router_socket_;  // where the router gets answers
  ChildLog spare_log_;
  // By their arguments, which are those of the workers that they can replace.
  std::map<std::vector<std::string>, std::unique_ptr<SparePool>> spares_;
  StallJudge judge_;
  Clock::time_point stalled_at_;  // when the router last told of stalled workers
  Mutex mutex_;
  ClosableQueue<Event> events_;  // never closed
};

}  // namespace stagecoach::launch
