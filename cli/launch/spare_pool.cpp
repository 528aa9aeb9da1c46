#include "cli/launch/spare_pool.h"

#include <string_view>
#include <utility>

#include "common/fd_store/fd_packet.h"
#include "common/mutex.h"
#include "common/status.h"

namespace stagecoach::launch {

// The events of one process: of interest to nobody until it has a place. Thread-safe.
class SparePool::Events {
 public:
  explicit Events(ChildLog* log) : log_(log) {}

  // False if the process has ended already.
  bool SendTo(ChildCallbacks callbacks) {
    const MutexLock lock(mutex_);
    if (!has_ended_) to_ = std::move(callbacks);
    return !has_ended_;
  }
  bool has_ended() {
    const MutexLock lock(mutex_);
    return has_ended_;
  }
  void Stdout(std::string_view line) {
    if (const auto call = Current().on_stdout) call(line);
  }
  void Stderr(std::string_view line) {
    const auto call = Current().on_stderr;
    call ? call(line) : log_->Add(line);
  }
  void Stopped(bool stopped) {
    if (const auto call = Current().on_stopped) call(stopped);
  }
  void Exit(const ChildExit& exit) {
    std::function<void(const ChildExit&)> call;
    {
      const MutexLock lock(mutex_);
      has_ended_ = true;
      call = to_.on_exit;
    }
    if (call) call(exit);
  }

 private:
  ChildCallbacks Current() {
    const MutexLock lock(mutex_);
    return to_;
  }

  ChildLog* const log_;
  Mutex mutex_;
  ChildCallbacks to_ ABSL_GUARDED_BY(mutex_);  // empty until the process has a place
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
};

SparePool::SparePool(ChildSpec spec, size_t n, ChildLog* log)
    : spec_(std::move(spec)), n_(n), log_(log) {}

SparePool::~SparePool() = default;

absl::Status SparePool::Fill() {
  waiting_.remove_if([](const Waiting& one) { return one.events->has_ended(); });
  while (waiting_.size() < n_) SC_RETURN_IF_ERROR(Start());
  return absl::OkStatus();
}

absl::Status SparePool::Start() {
  SC_ASSIGN_OR_RETURN(auto ends, MakePacketSockets());
  spec_.inherited_fd = ends.second.get();
  const auto events = std::make_shared<Events>(log_);
  SC_ASSIGN_OR_RETURN(
      std::unique_ptr<ChildProcess> process,
      ChildProcess::Spawn(spec_,
                          {.on_stdout = [events](std::string_view line) { events->Stdout(line); },
                           .on_stderr = [events](std::string_view line) { events->Stderr(line); },
                           .on_exit = [events](const ChildExit& exit) { events->Exit(exit); },
                           .on_stopped = [events](bool stopped) { events->Stopped(stopped); }}));
  waiting_.push_back({.spare = {.process = std::move(process), .socket = std::move(ends.first)},
                      .events = events});
  return absl::OkStatus();
}

std::optional<SparePool::Spare> SparePool::Take(const std::string& address,
                                                ChildCallbacks callbacks) {
  while (!waiting_.empty()) {
    Waiting first = std::move(waiting_.front());
    waiting_.pop_front();
    if (!SendPacket(first.spare.socket, address).ok()) continue;
    if (first.events->SendTo(callbacks)) return std::move(first.spare);
  }
  return std::nullopt;
}

}  // namespace stagecoach::launch
