// Code that runs in a signal handler: nothing here may allocate, lock or format.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "common/check.h"
#include "common/flight/flight_recorder.h"
#include "common/signal_log.h"

namespace stagecoach {
namespace {

constexpr std::array kFaults = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
constexpr int kMostFiles = 1000;
constexpr char kSuffix[] = ".flight";

// Set before the handlers are installed and never changed afterwards.
FlightRecorder* recorder = nullptr;
char path_begin[1024];  // "FOLDER/PROGRAM-PID-"
struct sigaction before[kFaults.size()];
std::atomic<bool> faulted = false;

// Writes "FOLDER/PROGRAM-PID-N.flight" into `path`, which is large enough.
void MakePath(int n, char* path) {
  char digits[12];
  int n_digits = 0;
  for (; n > 0; n /= 10) digits[n_digits++] = static_cast<char>('0' + n % 10);
  char* end = stpcpy(path, path_begin);
  while (n_digits > 0) *end++ = digits[--n_digits];
  std::memcpy(end, kSuffix, sizeof(kSuffix));
}

void WriteFile(int signal) {
  char path[sizeof(path_begin) + 32];
  int fd = -1;
  for (int n = 1; n <= kMostFiles && fd < 0; ++n) {
    MakePath(n, path);
    // O_EXCL and O_NOFOLLOW: never write through a file or link that another user put there.
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno != EEXIST) break;
  }
  const bool written = fd >= 0 && recorder->Write(fd, signal);
  if (fd >= 0) close(fd);
  LogFromSignal(
      SignalLogLevel::kInfo,
      written ? "flight recorder: the last steps are in " : "flight recorder: cannot write ", path,
      "", 0);
}

void OnRequest(int signal) {
  const int saved_errno = errno;
  WriteFile(signal);
  errno = saved_errno;
}

void OnFault(int signal, siginfo_t* info, void*) {
  // Only the first fault writes a file. Ignore a fault in this handler, or in another thread
  // meanwhile.
  if (!faulted.exchange(true)) WriteFile(signal);
  for (size_t i = 0; i < kFaults.size(); ++i) {
    if (kFaults[i] == signal) sigaction(signal, &before[i], nullptr);
  }
  // A faulting instruction faults again on return, so a debugger or core dump shows the place. A
  // signal sent by kill() or abort() does not repeat, so raise it again.
  if (info->si_code <= 0) raise(signal);
}

void Handle(int signal, struct sigaction& action, struct sigaction* previous) {
  sigemptyset(&action.sa_mask);
  SC_CHECK(sigaction(signal, &action, previous) == 0);
}

}  // namespace

absl::Status WriteFlightOnSignals(FlightRecorder* new_recorder, const std::string& folder,
                                  const std::string& program) {
  struct sigaction on_request{};
  if (folder == "off") {
    on_request.sa_handler = SIG_IGN;
    Handle(SIGUSR1, on_request, nullptr);
    return absl::OkStatus();
  }
  const std::string begin = fmt::format("{}/{}-{}-", folder, program, getpid());
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error) || begin.size() >= sizeof(path_begin)) {
    return absl::InvalidArgumentError(fmt::format(
        "--flight-recorder {}: not a folder; give an existing folder, or \"off\"", folder));
  }
  SC_CHECK(recorder == nullptr);
  recorder = new_recorder;
  std::memcpy(path_begin, begin.c_str(), begin.size() + 1);
  on_request.sa_handler = OnRequest;
  on_request.sa_flags = SA_RESTART;
  Handle(SIGUSR1, on_request, nullptr);
  for (size_t i = 0; i < kFaults.size(); ++i) {
    struct sigaction on_fault{};
    on_fault.sa_sigaction = OnFault;
    on_fault.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    Handle(kFaults[i], on_fault, &before[i]);
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
