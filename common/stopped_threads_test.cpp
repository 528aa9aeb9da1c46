#include "common/stopped_threads.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <future>
#include <thread>

namespace stagecoach {
namespace {

// A child process that stops one thread of this process, as a debugger does, until told to end.
class Debugger {
 public:
  explicit Debugger(pid_t thread) {
    REQUIRE(pipe(stopped_) == 0);
    REQUIRE(pipe(go_on_) == 0);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // Yama would not let a child trace its parent
    child_ = fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) Run(thread);
    char done = 0;
    REQUIRE(read(stopped_[0], &done, 1) == 1);
    REQUIRE(done == 1);
  }
  void Continue() {
    const char done = 1;
    REQUIRE(write(go_on_[1], &done, 1) == 1);
    waitpid(child_, nullptr, 0);
  }

 private:
  [[noreturn]] void Run(pid_t thread) const {
    const bool held = ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0 &&
                      ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0 &&
                      waitpid(thread, nullptr, __WALL) == thread;
    char done = held ? 1 : 0;
    if (write(stopped_[1], &done, 1) != 1 || read(go_on_[0], &done, 1) != 1) _exit(1);
    ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
    _exit(0);
  }

  int stopped_[2] = {}, go_on_[2] = {};
  pid_t child_ = 0;
};

TEST_CASE("a thread that a debugger holds is listed with its name, until it continues") {
  std::promise<pid_t> id;
  std::promise<void> end;
  std::thread thread([&] {
    pthread_setname_np(pthread_self(), "held (1) 2");
    id.set_value(static_cast<pid_t>(syscall(SYS_gettid)));
    end.get_future().wait();
  });
  const pid_t held = id.get_future().get();
  const auto find = [&] {
    const auto threads = StoppedThreads();
    const auto found = std::find_if(threads.begin(), threads.end(),
                                    [&](const StoppedThread& one) { return one.id == held; });
    return found == threads.end() ? std::string() : found->name;
  };
  CHECK(find().empty());
  {
    Debugger debugger(held);
    CHECK(find() == "held (1) 2");
    debugger.Continue();
  }
  CHECK(find().empty());
  end.set_value();
  thread.join();
}

}  // namespace
}  // namespace stagecoach
