#include "common/process.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "common/check.h"

namespace stagecoach {
namespace {

constexpr int kInterrupt = SIGUSR2;

}  // namespace

void ExitWithParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before the call above: then init, or a subreaper, is the parent by now.
  if (getppid() != parent) std::_Exit(1);
}

void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void StopTrackingLockOrder() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

ShutdownSignals::ShutdownSignals(int other) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, kInterrupt);
  if (other != 0) sigaddset(&signals_, other);
  SC_CHECK(pthread_sigmask(SIG_BLOCK, &signals_, nullptr) == 0);
  std::signal(SIGPIPE, SIG_IGN);
}

int ShutdownSignals::Wait() {
  int signal = 0;
  SC_CHECK(sigwait(&signals_, &signal) == 0);
  return signal == kInterrupt ? 0 : signal;
}

void ShutdownSignals::Interrupt() { kill(getpid(), kInterrupt); }

EndAtOnceOnSignal::EndAtOnceOnSignal(ShutdownSignals* signals)
    : signals_(signals), watcher_([this] {
        while (true) {
          const int signal = signals_->Wait();
          if (finished_) return;
          if (signal != 0) std::_Exit(kExitBySignal + signal);
        }
      }) {}

EndAtOnceOnSignal::~EndAtOnceOnSignal() {
  finished_ = true;
  signals_->Interrupt();
  watcher_.join();
}

}  // namespace stagecoach
