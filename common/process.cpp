#include "common/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/log.h"

namespace stagecoach {
namespace {

constexpr int kThreads = 2;
constexpr int kNever = -1;

// State of the signal handler. A handler may only use async-signal-safe calls and atomics.
int heard[2];  // a pipe that carries signal numbers
std::atomic<int> second_grace_s = kNever;
std::atomic<int> n_stops = 0;
std::atomic<int> last_stop = 0;

void Tell(int signal) {
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t written = write(heard[1], &byte, 1);
}

void OnSignal(int signal) {
  const int saved_errno = errno;
  if (signal == SIGALRM) _exit(kExitBySignal + last_stop);
  if (signal == SIGTERM || signal == SIGINT) {
    last_stop = signal;
    const int grace_s = second_grace_s;
    if (n_stops++ > 0 && grace_s != kNever) {
      if (grace_s == 0) _exit(kExitBySignal + signal);
      alarm(static_cast<unsigned>(grace_s));
    }
  }
  Tell(signal);
  errno = saved_errno;
}

}  // namespace

void ExitWithParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the call above. Then init or a subreaper is the parent now.
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
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGALRM, other}) {
    if (signal != 0) sigaddset(&signals, signal);
  }
  // Blocks the signals in every thread started from here on. Two threads unblock them, so that one
  // still handles signals if the other is stuck.
  SC_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  static std::once_flag once;
  std::call_once(once, [] { SC_CHECK(pipe2(heard, O_CLOEXEC) == 0); });
  second_grace_s = kNever;
  n_stops = 0;
  struct sigaction action{};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  for (const int signal : {SIGTERM, SIGINT, SIGALRM, other}) {
    if (signal != 0) SC_CHECK(sigaction(signal, &action, nullptr) == 0);
  }
  for (int i = 0; i < kThreads; ++i) {
    std::thread([signals] {
      pthread_setname_np(pthread_self(), "signals");
      SC_CHECK(pthread_sigmask(SIG_UNBLOCK, &signals, nullptr) == 0);
      while (true) pause();
    }).detach();
  }
  std::signal(SIGPIPE, SIG_IGN);
}

void ShutdownSignals::SecondEnds(std::chrono::seconds grace) {
  second_grace_s = static_cast<int>(grace.count());
}

int ShutdownSignals::Wait() {
  unsigned char signal = 0;
  while (read(heard[0], &signal, 1) != 1) SC_CHECK(errno == EINTR);
  return signal;
}

void ShutdownSignals::Interrupt() { Tell(0); }

void EndWithin(std::chrono::seconds grace, std::string why) {
  std::thread([grace, why = std::move(why)] {
    std::this_thread::sleep_for(grace);
    LogFatal(why);
    std::_Exit(1);
  }).detach();
}

}  // namespace stagecoach
