#include "cli/launch/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "cli/launch/fields.h"
#include "cli/launch/program_args.h"
#include "common/check.h"
#include "common/fd_store/fd_packet.h"
#include "common/secret.h"
#include "common/status.h"

namespace stagecoach::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// If a worker dies, the router exits too, and the launcher may see either exit first. It waits this
// long to find the root cause.
constexpr milliseconds kCauseGrace(300);
// Time for the router to tell its clients which stage was lost, once it has given up.
constexpr seconds kRouterFailGrace(5);
constexpr seconds kWorkerStopGrace(10);
// How long a shutdown waits for a stopped process to continue; equals the default of the router's
// --stall-limit.
constexpr seconds kStoppedGrace(10);
constexpr milliseconds kLook(500);
// A worker that dies this often within this time is not replaced any more.
constexpr size_t kMostDeaths = 20;
constexpr seconds kDeathsTime(60);
// A worker that was killed this often within that time for a stall gets more time. Perhaps the
// launcher is wrong about it.
constexpr size_t kFewKills = 5;
// Lines of the router, each with addresses of workers. It asks to replace those that have stalled
// for too long, and tells which ones are stalled, perhaps none, whenever that changes.
constexpr std::string_view kReplaceLine = "replace ";
constexpr std::string_view kStalledLine = "stalled";
// The router says that the pipeline works again after a loss.
constexpr std::string_view kRestoredLine = "restored";
// The router asks for the workers of a replica with this number; a replica with these workers gets
// requests now; these workers are not needed any more.
constexpr std::string_view kAddLine = "add ";
constexpr std::string_view kAddedLine = "added ";
constexpr std::string_view kDrainedLine = "drained ";
// More replicas are not started: as many as the router has numbers (ReplicaSet::kMostReplicas).
constexpr size_t kMostReplicas = 1024;

// Removes what is not within the last kDeathsTime, and counts the rest.
size_t NRecent(std::vector<std::chrono::steady_clock::time_point>& times) {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(times, [now](auto time) { return now - time > kDeathsTime; });
  return times.size();
}

}  // namespace

Cluster::Cluster(ClusterOptions options)
    : options_(std::move(options)),
      secret_(MakeSecret()),
      spare_log_("spare", options_.echo_logs, options_.log_format()) {
  SC_CHECK(options_.n_stages > 0);
  // Reader threads hold indices and not references, but the vector must not reallocate while
  // Signal() uses a child.
  children_.reserve(size_t{options_.n_stages} * kMostReplicas + 1);
}

Cluster::~Cluster() { KillAll(); }

absl::StatusOr<Endpoints> Cluster::Start() {
  if (!options_.devices.empty() && options_.devices.size() != options_.n_workers()) {
    return absl::InvalidArgumentError(
        fmt::format("--devices names {} GPUs for {} replicas of {} stages", options_.devices.size(),
                    options_.serve.replicas, options_.n_stages));
  }
  SC_RETURN_IF_ERROR(SpawnWorkers());
  SC_ASSIGN_OR_RETURN(const std::vector<std::string> listening, AwaitLines(0, "listening "));
  for (size_t i = 0; i < listening.size(); ++i) {
    SC_ASSIGN_OR_RETURN(addresses_.emplace_back(), Field(listening[i], "grpc"));
    children_[i].spec.args[1] = addresses_.back();  // a replacement listens there too
  }
  for (uint32_t replica = 0; replica < options_.serve.replicas; ++replica) {
    places_.push_back(replica);
  }
  SC_RETURN_IF_ERROR(SpawnRouter());
  SC_ASSIGN_OR_RETURN(const std::vector<std::string> ready, AwaitLines(router(), "ready "));
  Endpoints endpoints{.ready_line = ready.front(), .grpc = "", .http = ""};
  if (options_.serve.grpc != "off") {
    SC_ASSIGN_OR_RETURN(endpoints.grpc, Field(endpoints.ready_line, "grpc"));
  }
  if (options_.serve.http != "off") {
    SC_ASSIGN_OR_RETURN(endpoints.http, Field(endpoints.ready_line, "http"));
  }
  if (!options_.serve.journal.place.empty()) {
    SC_RETURN_IF_ERROR(KeepAddresses(endpoints.ready_line));
  }
  FillSpares();
  return endpoints;
}

absl::Status Cluster::KeepAddresses(const std::string& ready_line) {
  ServeFlags& bound = bound_ = options_.serve;
  if (bound.grpc != "off") {
    SC_ASSIGN_OR_RETURN(bound.grpc, Field(ready_line, "grpc"));
  }
  if (bound.http != "off") {
    SC_ASSIGN_OR_RETURN(bound.http, Field(ready_line, "http"));
  }
  SC_ASSIGN_OR_RETURN(bound.metrics, Field(ready_line, "metrics"));
  UpdateRouterArgs();
  return absl::OkStatus();
}

absl::Status Cluster::SpawnWorkers() {
  for (uint32_t worker = 0; worker < options_.n_workers(); ++worker) {
    SC_RETURN_IF_ERROR(
        Add(WorkerName(options_, worker), "stagecoach-worker", WorkerArgs(options_, worker)));
  }
  return absl::OkStatus();
}

absl::Status Cluster::SpawnRouter() {
  std::vector<std::string> args = RouterArgs(options_, options_.serve, addresses_);
  addresses_.emplace_back();  // it is no worker
  return Add("router", "stagecoach-router", std::move(args));
}

absl::Status Cluster::Add(const std::string& name, const std::string& program,
                          std::vector<std::string> args) {
  Child& child = children_.emplace_back();
  child.spec = {.program = options_.program_dir + "/" + program,
                .args = std::move(args),
                .environment = ToEnvironment(options_.serve),
                .input = secret_};
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
  if (index == router() && !options_.serve.control.empty()) {
    SC_ASSIGN_OR_RETURN(auto ends, MakePacketSockets());
    router_socket_ = std::move(ends.first);
    memory = std::move(ends.second);
  } else if (index != router() && options_.replaces_workers()) {
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
          .on_stderr =
              [this, log](std::string_view line) {
                log->Add(line);
                if (options_.on_child_line) options_.on_child_line(line);
              },
          .on_exit =
              [this, index](const ChildExit& exit) {
                const MutexLock lock(mutex_);
                children_[index].exit = exit;
                Post({.kind = Event::kExit, .child = index, .line = ""});
              },
          .on_stopped = [this, index](bool stopped) { OnStopped(index, stopped); }};
}

void Cluster::FillSpares() {
  if (options_.n_spares == 0 || !options_.replaces_workers()) return;
  for (size_t i = 0; i < children_.size(); ++i) {
    if (i == router() || children_[i].is_given_up || HasNoAddress(i)) continue;
    ChildSpec spec = children_[i].spec;
    spec.args = SpareArgs(spec.args);
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
  const auto pool = spares_.find(SpareArgs(child.spec.args));
  if (pool == spares_.end()) return nullptr;
  std::optional<SparePool::Spare> spare = pool->second->Take(addresses_[index], CallbacksOf(index));
  if (!spare) return nullptr;
  child.memory->Connect(std::move(spare->socket));
  return std::move(spare->process);
}

bool Cluster::RouterGoesOn() const {
  const std::optional<ChildExit>& exit = children_[router()].exit;
  // One that exits by itself has a reason, which would also be its successor's.
  return !exit || (exit->signal != 0 && !options_.serve.journal.place.empty());
}

bool Cluster::MayReplace(size_t index) {
  if (index != router() && !options_.replaces_workers()) return false;
  const MutexLock lock(mutex_);
  // A worker that ends in good order was told to: another one takes its place, perhaps of another
  // version.
  if (!RouterGoesOn()) return false;
  children_[index].deaths.push_back(Clock::now());
  return NRecent(children_[index].deaths) < kMostDeaths;
}

bool Cluster::GiveUp(size_t index) {
  if (index == router()) return false;
  const MutexLock lock(mutex_);
  children_[index].is_given_up = true;
  if (!RouterGoesOn()) return false;
  for (const size_t first : Replicas()) {
    const auto begin = children_.begin() + static_cast<std::ptrdiff_t>(first);
    if (std::none_of(begin, begin + options_.n_stages,
                     [](const Child& child) { return child.is_given_up; })) {
      children_[index].log->Say("it is not started again; the router goes on without its replica");
      return true;
    }
  }
  return false;
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
  judge_.Forget(index);
  std::unique_ptr<ChildProcess> spare = TakeSpare(index);
  const char* const successor = spare != nullptr ? "a spare" : "another one";
  if (spare != nullptr) {
    child.process = std::move(spare);
  } else {
    SC_RETURN_IF_ERROR(Spawn(index));
  }
  child.log->Say(fmt::format("the process {}; {} takes its place: process {}", exit.Describe(),
                             successor, child.process->pid()));
  return absl::OkStatus();
}

std::vector<size_t> Cluster::StagesAt(const std::string& addresses) const {
  const std::vector<std::string> all = absl::StrSplit(addresses, ' ', absl::SkipEmpty());
  std::vector<size_t> stages;
  for (const std::string& address : all) {
    const auto found = std::find(addresses_.begin(), addresses_.end(), address);
    if (found != addresses_.end()) stages.push_back(found - addresses_.begin());
  }
  return stages;
}

void Cluster::Kill(size_t stage, const std::string& why) {
  children_[stage].log->Say(why);
  children_[stage].process->Signal(SIGKILL);
}

void Cluster::Obey(const std::string& line) {
  if (line.starts_with(kReplaceLine)) {
    for (const size_t stage : StagesAt(line.substr(kReplaceLine.size()))) {
      const std::vector<Clock::time_point>& deaths = children_[stage].deaths;
      // The process that the router found stalled is gone already.
      if (!deaths.empty() && deaths.back() > stalled_at_) continue;
      Kill(stage, "the router asks for another process in this one's place");
    }
  } else if (line.starts_with(kStalledLine)) {
    const std::vector<size_t> stages = StagesAt(line.substr(kStalledLine.size()));
    if (!stages.empty()) stalled_at_ = Clock::now();
    judge_.SetStalled(stages, Clock::now());
  } else if (line == kRestoredLine) {
    FillSpares();
  } else if (line.starts_with(kAddLine)) {
    new_replica_ = NewReplica{};
    if (!absl::SimpleAtoi(line.substr(kAddLine.size()), &new_replica_->number)) return;
    StartNewReplica();
  } else if (line.starts_with(kAddedLine)) {
    UpdateRouterArgs();
    FillSpares();
  } else if (line.starts_with(kDrainedLine)) {
    for (const size_t worker : StagesAt(line.substr(kDrainedLine.size()))) Release(worker);
    UpdateRouterArgs();
  }
}

void Cluster::LookAtStalled() {
  const auto rests = [this](size_t stage) { return NothingWakes(stage); };
  const auto is_doubted = [this](size_t stage) {
    return NRecent(children_[stage].kills) >= kFewKills;
  };
  for (const size_t stage : judge_.Look(rests, is_doubted, Clock::now())) {
    children_[stage].kills.push_back(Clock::now());
    Kill(stage, "it is stalled, and nothing that could wake it moves any more: it is killed");
  }
}

bool Cluster::NothingWakes(size_t stage) const {
  const auto any = [this](std::string_view states, size_t first, size_t last) {
    return std::any_of(children_.begin() + first, children_.begin() + last, [&](const Child& c) {
      return !c.is_given_up && HasThreadIn(states, c.process->pid());
    });
  };
  const size_t first = FirstOfReplica(stage);
  const size_t last = first + options_.n_stages;
  if (any(kWantsToRun, first, last)) return false;
  if (any(kIsStopped, stage, stage + 1)) return true;
  // It may wait for another stage that is stopped. A stopped router may be what does not hear it.
  if (any(kIsStopped, first, last) || any(kIsStopped, router(), router() + 1)) return false;
  // It may wait for the router, which other replicas keep busy.
  return !any(kWantsToRun, 0, children_.size());
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
    const Event event = NextEvent(judge_.next_look());
    if (event.kind == Event::kStop) return StopInOrder();
    if (event.kind != Event::kTimeout && HasNoAddress(event.child)) {
      OnNewWorker(event);
    } else if (event.kind == Event::kExit) {
      if (MayReplace(event.child)) {
        SC_RETURN_IF_ERROR(Replace(event.child));
      } else if (!GiveUp(event.child)) {
        return Fail(event.child);
      }
    }
    if (event.kind == Event::kLine && event.child == router()) Obey(event.line);
    if (event.kind == Event::kFlight) SignalAll(0, children_.size(), SIGUSR1);
    if (event.kind == Event::kSignal) children_[event.child].process->Signal(event.signal);
    if (Clock::now() >= judge_.next_look()) LookAtStalled();
  }
}

void Cluster::RequestStop() { Post({.kind = Event::kStop, .child = 0, .line = ""}); }
void Cluster::RequestSignal(size_t stage, int signal) {
  Post({.kind = Event::kSignal, .child = stage, .line = "", .signal = signal});
}
void Cluster::RequestFlight() { Post({.kind = Event::kFlight, .child = 0, .line = ""}); }

absl::Status Cluster::StopInOrder() {
  SignalAll(router(), router() + 1, SIGTERM);
  switch (AwaitEnd(router(), router() + 1, Clock::time_point::max())) {
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
  SignalAll(0, children_.size(), SIGTERM);
  const bool ended =
      AwaitEnd(0, children_.size(), Clock::now() + kWorkerStopGrace) == Awaited::kEnded;
  KillAll();
  // The router first: it knows what its clients were told.
  for (size_t i = 0; i < children_.size(); ++i) {
    const Child& child = children_[(router() + i) % children_.size()];
    if (!child.exit->Clean() && !child.is_released) {
      return absl::InternalError(child.log->Cause(*child.exit) +
                                 (ended ? "" : "; not all workers exited in time"));
    }
  }
  return absl::OkStatus();
}

absl::Status Cluster::Fail(size_t dead) {
  size_t cause = dead;
  if (dead == router()) {
    AwaitEnd(0, children_.size(), Clock::now() + kCauseGrace);
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < children_.size(); ++i) {
      if (i != router() && children_[i].exit.has_value() && !children_[i].is_released) cause = i;
    }
  } else if (children_.size() > router()) {
    // The router gives up when the stage has not come back within its limit.
    const seconds limit = options_.serve.recovery_limit;
    if (limit.count() > 0) {
      children_[dead].log->Say(fmt::format(
          "it is not started again; the router ends, after {} s at most", limit.count()));
    }
    AwaitEnd(router(), router() + 1, Clock::now() + limit + kRouterFailGrace);
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
