#include "cli/launch/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <utility>

#include "cli/launch/line_splitter.h"
#include "common/check.h"

extern char** environ;

namespace stagecoach::launch {
namespace {

// Interval between checks whether the child is stopped.
constexpr int kStopIntervalMs = 500;

struct Pipe {
  int read = -1;
  int write = -1;

  Pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) == 0) {
      read = fds[0];
      write = fds[1];
    }
  }
  ~Pipe() {
    CloseWrite();
    if (read >= 0) close(read);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  bool ok() const { return read >= 0; }
  void CloseWrite() {
    if (write >= 0) close(write);
    write = -1;
  }
  int TakeRead() { return std::exchange(read, -1); }
};

class SpawnSettings {
 public:
  // stdin_fd -1: the child's standard input is empty. inherited_fd -1: none.
  SpawnSettings(int stdin_fd, int stdout_fd, int stderr_fd, int inherited_fd) {
    SC_CHECK(posix_spawn_file_actions_init(&actions_) == 0);
    SC_CHECK(posix_spawnattr_init(&attributes_) == 0);
    if (stdin_fd < 0) {
      posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    } else {
      posix_spawn_file_actions_adddup2(&actions_, stdin_fd, STDIN_FILENO);
    }
    posix_spawn_file_actions_adddup2(&actions_, stdout_fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, stderr_fd, STDERR_FILENO);
    if (inherited_fd >= 0) {
      posix_spawn_file_actions_adddup2(&actions_, inherited_fd, ChildProcess::kInheritedFd);
    }
    posix_spawn_file_actions_addclosefrom_np(
        &actions_, inherited_fd >= 0 ? ChildProcess::kInheritedFd + 1 : STDERR_FILENO + 1);

    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// The child's environment, with a null at the end.
std::vector<char*> VariablesOf(const ChildSpec& spec) {
  const auto name_of = [](std::string_view variable) {
    return variable.substr(0, variable.find('='));
  };
  std::vector<char*> variables;
  for (char** ours = environ; *ours != nullptr; ++ours) {
    const bool is_replaced =
        std::any_of(spec.environment.begin(), spec.environment.end(),
                    [&](const std::string& one) { return name_of(one) == name_of(*ours); });
    if (!is_replaced) variables.push_back(*ours);
  }
  for (const std::string& one : spec.environment) {
    variables.push_back(const_cast<char*>(one.c_str()));
  }
  variables.push_back(nullptr);
  return variables;
}

}  // namespace

std::string ChildExit::Describe() const {
  if (signal == 0) return fmt::format("exited with code {}", code);
  return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Spawn(const ChildSpec& spec,
                                                                  ChildCallbacks callbacks) {
  Pipe in, out, err;
  if (!in.ok() || !out.ok() || !err.ok()) {
    return absl::ResourceExhaustedError(
        fmt::format("cannot make a pipe for {}: {}", spec.program, std::strerror(errno)));
  }
  std::vector<char*> argv{const_cast<char*>(spec.program.c_str())};
  for (const std::string& arg : spec.args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> variables = VariablesOf(spec);

  // The input fits into the pipe's buffer, so this write does not wait for the child to read.
  SC_CHECK(spec.input.size() <= PIPE_BUF);
  if (write(in.write, spec.input.data(), spec.input.size()) < 0) {
    return absl::InternalError(
        fmt::format("cannot write to a pipe for {}: {}", spec.program, std::strerror(errno)));
  }
  in.CloseWrite();
  const SpawnSettings settings(spec.input.empty() ? -1 : in.read, out.write, err.write,
                               spec.inherited_fd);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, spec.program.c_str(), settings.actions(),
                                settings.attributes(), argv.data(), variables.data());
  if (error != 0) {
    const std::string message =
        fmt::format("cannot start {}: {}", spec.program, std::strerror(error));
    return error == ENOENT ? absl::NotFoundError(message) : absl::InternalError(message);
  }
  out.CloseWrite();
  err.CloseWrite();
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(pid, out.TakeRead(), err.TakeRead(), std::move(callbacks)));
}

ChildProcess::ChildProcess(pid_t pid, int stdout_fd, int stderr_fd, ChildCallbacks callbacks)
    : pid_(pid),
      stdout_fd_(stdout_fd),
      stderr_fd_(stderr_fd),
      callbacks_(std::move(callbacks)),
      reader_([this] { ReadUntilExit(); }) {}

ChildProcess::~ChildProcess() {
  Signal(SIGKILL);
  reader_.join();
}

void ChildProcess::Signal(int signal) {
  const MutexLock lock(mutex_);
  if (!reaped_) kill(pid_, signal);
}

void ChildProcess::TellStops() {
  siginfo_t info{};
  while (waitid(P_PID, pid_, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0) {
    if (callbacks_.on_stopped) callbacks_.on_stopped(info.si_code != CLD_CONTINUED);
    info.si_pid = 0;
  }
}

void ChildProcess::ReadUntilExit() {
  LineSplitter out(callbacks_.on_stdout);
  LineSplitter err(callbacks_.on_stderr);
  std::array<pollfd, 2> streams{{{stdout_fd_, POLLIN, 0}, {stderr_fd_, POLLIN, 0}}};
  std::array<LineSplitter*, 2> splitters{&out, &err};
  char buffer[16384];
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    TellStops();
    if (poll(streams.data(), streams.size(), kStopIntervalMs) < 0) {
      SC_CHECK(errno == EINTR);
      continue;
    }
    for (size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].fd < 0 || streams[i].revents == 0) continue;
      const ssize_t n = read(streams[i].fd, buffer, sizeof buffer);
      if (n > 0) {
        splitters[i]->Push({buffer, static_cast<size_t>(n)});
      } else if (n == 0 || errno != EINTR) {
        splitters[i]->Flush();
        close(streams[i].fd);
        streams[i].fd = -1;
      }
    }
  }

  // Wait without reaping first: Signal() must never hit another process that got the same pid.
  siginfo_t info{};
  while (waitid(P_PID, pid_, &info, WEXITED | WNOWAIT) < 0) SC_CHECK(errno == EINTR);
  {
    const MutexLock lock(mutex_);
    int status = 0;
    SC_CHECK(waitpid(pid_, &status, 0) == pid_);
    reaped_ = true;
  }
  ChildExit exit;
  if (info.si_code == CLD_EXITED) {
    exit.code = info.si_status;
  } else {
    exit.signal = info.si_status;
  }
  callbacks_.on_exit(exit);
}

}  // namespace stagecoach::launch
