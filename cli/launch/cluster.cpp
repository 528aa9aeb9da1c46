#include "cli/launch/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <thread>
#include <utility>

#include "cli/launch/fields.h"
#include "common/check.h"
#include "common/flags/flag_table.h"
#include "common/secret.h"
#include "common/status.h"

namespace stagecoach::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// If a worker dies, the router exits too, and the launcher may see either exit first. It waits this
// long to find the root cause.
constexpr milliseconds kCauseGrace(300);
// Time for the router to tell its clients which stage was lost.
constexpr seconds kRouterFailGrace(5);
constexpr seconds kWorkerStopGrace(10);
// How long a shutdown waits for a stopped process to continue; equals the default of the router's
// --stall-limit.
constexpr seconds kStoppedGrace(10);
constexpr milliseconds kLook(500);
// A worker that dies this often within this time is not replaced any more.
constexpr size_t kMostDeaths = 20;
constexpr seconds kDeathsTime(60);
// The router asks for the replacement of a stage that is stalled.
constexpr std::string_view kReplaceLine = "replace ";
// The router says that the pipeline works again after a loss.
constexpr std::string_view kRestoredLine = "restored";

// With few cores per stage, every stage uses all cores. A single request then has the whole machine
// on every stage. Many requests are decoded in one microbatch, so the weights are read only once.
bool SharesCores(const ClusterOptions& options) {
  constexpr uint32_t kFew = 4;
  return options.device == "cpu" && options.threads_per_worker == 0 && options.n_stages > 1 &&
         std::thread::hardware_concurrency() < kFew * options.n_stages;
}

// If the stages divide evenly among the NUMA nodes, a stage's threads and memory are on one node.
std::optional<int> NumaNodeOf(uint32_t stage, const ClusterOptions& options) {
  const size_t n_nodes = options.numa_nodes.size();
  if (options.device != "cpu" || n_nodes < 2 || options.n_stages % n_nodes != 0 ||
      SharesCores(options)) {
    return std::nullopt;
  }
  return options.numa_nodes[stage / (options.n_stages / n_nodes)];
}

uint32_t ThreadsPerWorker(const ClusterOptions& options) {
  if (options.threads_per_worker > 0) return options.threads_per_worker;
  const uint32_t n_cores = std::max(1u, std::thread::hardware_concurrency());
  return SharesCores(options) ? n_cores : std::max(1u, n_cores / options.n_stages);
}

// "cpu", or "cuda:N" where N is the stage's GPU.
std::string DeviceOf(const ClusterOptions& options, uint32_t stage) {
  if (options.device != "cuda") return options.device;
  return fmt::format("cuda:{}", options.devices.empty() ? stage : options.devices[stage]);
}

void Append(std::vector<std::string> more, std::vector<std::string>* args) {
  args->insert(args->end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

// A spare learns its address when it gets a place.
std::vector<std::string> SpareArgs(const ChildSpec& worker) {
  SC_CHECK(worker.args[0] == "--listen");
  std::vector<std::string> args{"--spare"};
  args.insert(args.end(), worker.args.begin() + 2, worker.args.end());
  return args;
}

// A worker without links on a GPU takes no notice of their flags.
WorkerFlags FlagsOfWorkers(const ClusterOptions& options) {
  WorkerFlags flags = options.worker;
  if (options.device != "cuda" || options.n_stages < 2) flags.transport = {};
  return flags;
}

}  // namespace

Cluster::Cluster(ClusterOptions options)
    : options_(std::move(options)),
      secret_(MakeSecret()),
      spare_log_("spare", options_.echo_logs, options_.log_format()) {
  SC_CHECK(options_.n_stages > 0);
  // Reader threads hold indices and not references, but the vector must not reallocate while
  // Signal() uses a child.
  children_.reserve(options_.n_stages + 1);
}

Cluster::~Cluster() { KillAll(); }

absl::StatusOr<Endpoints> Cluster::Start() {
  if (!options_.devices.empty() && options_.devices.size() != options_.n_stages) {
    return absl::InvalidArgumentError(fmt::format("--devices names {} GPUs for {} stages",
                                                  options_.devices.size(), options_.n_stages));
  }
  SC_RETURN_IF_ERROR(SpawnWorkers());
  SC_ASSIGN_OR_RETURN(const std::vector<std::string> listening, AwaitLines(0, "listening "));
  for (size_t i = 0; i < listening.size(); ++i) {
    SC_ASSIGN_OR_RETURN(addresses_.emplace_back(), Field(listening[i], "grpc"));
    children_[i].spec.args[1] = addresses_.back();  // a replacement listens there too
  }
  SC_RETURN_IF_ERROR(SpawnRouter(addresses_));
  SC_ASSIGN_OR_RETURN(const std::vector<std::string> ready, AwaitLines(router(), "ready "));
  Endpoints endpoints{.ready_line = ready.front(), .grpc = ""};
  if (options_.serve.grpc != "off") {
    SC_ASSIGN_OR_RETURN(endpoints.grpc, Field(endpoints.ready_line, "grpc"));
  }
  FillSpares();
  return endpoints;
}

absl::Status Cluster::SpawnWorkers() {
  for (uint32_t stage = 0; stage < options_.n_stages; ++stage) {
    std::vector<std::string> args{"--listen",  "127.0.0.1:0",
                                  "--device",  DeviceOf(options_, stage),
                                  "--threads", fmt::format("{}", ThreadsPerWorker(options_))};
    Append(ArgsOf(options_.serve.observation, DeclareObservationFlags), &args);
    Append(ArgsOf(FlagsOfWorkers(options_), DeclareWorkerFlags), &args);
    if (const std::optional<int> node = NumaNodeOf(stage, options_)) {
      args.insert(args.end(), {"--numa-node", fmt::format("{}", *node)});
    }
    if (ReplacesWorkers()) {
      args.insert(args.end(), {"--memory-store", fmt::format("{}", ChildProcess::kInheritedFd)});
    }
    SC_RETURN_IF_ERROR(Add(fmt::format("worker {}", stage), "stagecoach-worker", std::move(args)));
  }
  return absl::OkStatus();
}

absl::Status Cluster::SpawnRouter(const std::vector<std::string>& stages) {
  std::vector<std::string> args{"--model", options_.model, "--stages",
                                fmt::format("{}", fmt::join(stages, ","))};
  ServeFlags serve = options_.serve;
  if (serve.microbatches == 0 && SharesCores(options_)) serve.microbatches = 1;
  Append(ToArgs(serve), &args);
  return Add("router", "stagecoach-router", std::move(args));
}

absl::Status Cluster::Add(const std::string& name, const std::string& program,
                          std::vector<std::string> args) {
  args.insert(args.end(),
              {"--log-level", options_.log_level, "--exit-with-parent", std::to_string(getpid()),
               // Not an argument: every user of this machine can read arguments.
               "--secret-file", "/dev/stdin"});
  Child& child = children_.emplace_back();
  child.spec = {
      .program = options_.program_dir + "/" + program, .args = std::move(args), .input = secret_};
  child.log = std::make_unique<ChildLog>(name, options_.echo_logs, options_.log_format());
  absl::Status status = Spawn(children_.size() - 1);
  if (!status.ok()) {
    children_.pop_back();
    KillAll();
  }
  return status;
}

absl::Status Cluster::Spawn(size_t index) {
  Child& child = children_[index];
  UniqueFd memory;
  if (index < router() && ReplacesWorkers()) {
    if (child.memory == nullptr) child.memory = std::make_unique<MemoryPlace>();
    SC_ASSIGN_OR_RETURN(memory, child.memory->Connect());
  }
  child.spec.inherited_fd = memory.get();
  SC_ASSIGN_OR_RETURN(child.process, ChildProcess::Spawn(child.spec, CallbacksOf(index)));
  return absl::OkStatus();
}

ChildCallbacks Cluster::CallbacksOf(size_t index) {
  ChildLog* const log = children_[index].log.get();
  return {.on_stdout =
              [this, index](std::string_view line) {
                Post({.kind = Event::kLine, .child = index, .line = std::string(line)});
              },
          .on_stderr = [log](std::string_view line) { log->Add(line); },
          .on_exit =
              [this, index](const ChildExit& exit) {
                const MutexLock lock(mutex_);
                children_[index].exit = exit;
                Post({.kind = Event::kExit, .child = index, .line = ""});
              },
          .on_stopped = [this, index](bool stopped) { OnStopped(index, stopped); }};
}

void Cluster::FillSpares() {
  if (options_.n_spares == 0 || !ReplacesWorkers()) return;
  for (size_t i = 0; i < router(); ++i) {
    ChildSpec spec = children_[i].spec;
    spec.args = SpareArgs(spec);
    std::unique_ptr<SparePool>& pool = spares_[spec.args];
    if (pool == nullptr) {
      pool = std::make_unique<SparePool>(std::move(spec), options_.n_spares, &spare_log_);
    }
    if (const absl::Status status = pool->Fill(); !status.ok()) {
      spare_log_.Say(std::string(status.message()));
    }
  }
}

std::unique_ptr<ChildProcess> Cluster::TakeSpare(size_t index) {
  Child& child = children_[index];
  if (child.memory == nullptr) return nullptr;
  const auto pool = spares_.find(SpareArgs(child.spec));
  if (pool == spares_.end()) return nullptr;
  std::optional<SparePool::Spare> spare = pool->second->Take(addresses_[index], CallbacksOf(index));
  if (!spare) return nullptr;
  child.memory->Connect(std::move(spare->socket));
  return std::move(spare->process);
}

bool Cluster::MayReplace(size_t index) {
  if (index >= router() || !ReplacesWorkers()) return false;
  const MutexLock lock(mutex_);
  Child& child = children_[index];
  // A worker that ends in good order was told to, and has told the router.
  if (child.exit->Clean() || children_[router()].exit.has_value()) return false;
  child.deaths.push_back(Clock::now());
  std::erase_if(child.deaths, [](Clock::time_point at) { return Clock::now() - at > kDeathsTime; });
  return child.deaths.size() < kMostDeaths;
}

absl::Status Cluster::Replace(size_t index) {
  Child& child = children_[index];
  child.process.reset();  // waits for its reader
  ChildExit exit;
  {
    const MutexLock lock(mutex_);
    exit = *std::exchange(child.exit, std::nullopt);
    child.stopped_since.reset();
  }
  if (child.memory != nullptr) child.memory->End(exit);
  std::unique_ptr<ChildProcess> spare = TakeSpare(index);
  child.log->Say(fmt::format("the process {}; {} takes its place", exit.Describe(),
                             spare != nullptr ? "a spare" : "another one"));
  if (spare != nullptr) {
    child.process = std::move(spare);
    return absl::OkStatus();
  }
  return Spawn(index);
}

void Cluster::KillWorkerAt(std::string_view address) {
  const auto found = std::find(addresses_.begin(), addresses_.end(), address);
  if (found == addresses_.end()) return;
  Child& child = children_[static_cast<size_t>(found - addresses_.begin())];
  child.log->Say("the router asks for another process in this one's place");
  child.process->Signal(SIGKILL);
}

void Cluster::OnStopped(size_t index, bool stopped) {
  const MutexLock lock(mutex_);
  Child& child = children_[index];
  if (stopped == child.stopped_since.has_value()) return;
  child.stopped_since = stopped ? std::optional(Clock::now()) : std::nullopt;
  child.log->Say(
      stopped ? fmt::format("process {} is stopped, for example by SIGSTOP; SIGCONT continues it",
                            child.process == nullptr ? 0 : child.process->pid())
              : "the process continues");
  Post({.kind = Event::kStopped, .child = index, .line = ""});
}

absl::StatusOr<std::vector<std::string>> Cluster::AwaitLines(size_t first,
                                                             const std::string& prefix) {
  std::vector<std::string> lines(children_.size() - first);
  while (std::any_of(lines.begin(), lines.end(), [](const auto& line) { return line.empty(); })) {
    const Event event = NextEvent();
    if (event.kind == Event::kStop) {
      KillAll();
      return absl::CancelledError("stopped before it was ready");
    }
    if (event.kind == Event::kExit) return Fail(event.child);
    if (event.child >= first && event.line.starts_with(prefix)) {
      lines[event.child - first] = event.line;
    }
  }
  return lines;
}

absl::Status Cluster::Wait() {
  while (true) {
    const Event event = NextEvent();
    if (event.kind == Event::kStop) return StopInOrder();
    if (event.kind == Event::kExit) {
      if (!MayReplace(event.child)) return Fail(event.child);
      SC_RETURN_IF_ERROR(Replace(event.child));
    }
    if (event.kind == Event::kLine && event.child == router() &&
        event.line.starts_with(kReplaceLine)) {
      KillWorkerAt(std::string_view(event.line).substr(kReplaceLine.size()));
    }
    if (event.kind == Event::kLine && event.child == router() && event.line == kRestoredLine) {
      FillSpares();
    }
    if (event.kind == Event::kFlight) SignalAll(0, children_.size(), SIGUSR1);
  }
}

void Cluster::RequestStop() { Post({.kind = Event::kStop, .child = 0, .line = ""}); }
void Cluster::RequestFlight() { Post({.kind = Event::kFlight, .child = 0, .line = ""}); }

absl::Status Cluster::StopInOrder() {
  SignalAll(router(), children_.size(), SIGTERM);
  switch (AwaitEnd(router(), children_.size(), Clock::time_point::max())) {
    case Awaited::kEnded:
      break;
    case Awaited::kHeldUp:
      KillAll();
      return absl::UnavailableError(fmt::format(
          "the router was stopped and did not continue within {} s", kStoppedGrace.count()));
    default:
      KillAll();
      return absl::CancelledError("killed before all requests had ended");
  }
  SignalAll(0, router(), SIGTERM);
  const bool ended = AwaitEnd(0, router(), Clock::now() + kWorkerStopGrace) == Awaited::kEnded;
  KillAll();
  // The router first: it knows what its clients were told.
  for (size_t i = 0; i < children_.size(); ++i) {
    const Child& child = children_[(router() + i) % children_.size()];
    if (!child.exit->Clean()) {
      return absl::InternalError(child.log->Cause(*child.exit) +
                                 (ended ? "" : "; not all workers exited in time"));
    }
  }
  return absl::OkStatus();
}

absl::Status Cluster::Fail(size_t dead) {
  size_t cause = dead;
  if (dead == router()) {
    AwaitEnd(0, router(), Clock::now() + kCauseGrace);
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < router(); ++i) {
      if (children_[i].exit.has_value()) cause = i;
    }
  } else if (children_.size() > router()) {
    AwaitEnd(router(), children_.size(), Clock::now() + kRouterFailGrace);
  }
  std::string message;
  {
    const MutexLock lock(mutex_);
    message = children_[cause].log->Cause(*children_[cause].exit);
  }
  KillAll();
  return absl::UnavailableError(message);
}

void Cluster::KillAll() {
  // Each reset() waits for its child and its reader thread. All children are signalled first, so
  // that they end in parallel.
  SignalAll(0, children_.size(), SIGKILL);
  spares_.clear();
  for (Child& child : children_) child.process.reset();
}

void Cluster::SignalAll(size_t first, size_t last, int signal) {
  for (size_t i = first; i < last; ++i) {
    if (children_[i].process != nullptr) children_[i].process->Signal(signal);
  }
}

bool Cluster::AllEnded(size_t first, size_t last) const {
  return std::all_of(children_.begin() + first, children_.begin() + last,
                     [](const Child& child) { return child.exit.has_value(); });
}

bool Cluster::IsHeldUp(size_t first, size_t last) const {
  return std::any_of(children_.begin() + first, children_.begin() + last, [](const Child& child) {
    return child.stopped_since && Clock::now() - *child.stopped_since > kStoppedGrace;
  });
}

Cluster::Awaited Cluster::AwaitEnd(size_t first, size_t last, Clock::time_point deadline) {
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (AllEnded(first, last)) return Awaited::kEnded;
      if (IsHeldUp(first, last)) return Awaited::kHeldUp;
    }
    const Event event = NextEvent(std::min(deadline, Clock::now() + kLook));
    if (event.kind == Event::kStop) return Awaited::kStop;
    if (Clock::now() >= deadline) return Awaited::kTimeout;
  }
}

void Cluster::Post(Event event) { events_.Push(std::move(event)).IgnoreError(); }

Cluster::Event Cluster::NextEvent(Clock::time_point deadline) {
  return events_.PopUntil(deadline).value_or(
      Event{.kind = Event::kTimeout, .child = 0, .line = ""});
}

}  // namespace stagecoach::launch
