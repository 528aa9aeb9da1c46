#include "router/journal/lease_owner.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

TEST_CASE("an owner has ended when its process has") {
  const std::string self = NewLeaseOwner();
  CHECK(self != NewLeaseOwner());
  CHECK_FALSE(HasEnded(self));
  CHECK_FALSE(HasEnded(self + "/more"));
  CHECK(Describe(self).starts_with("process " + std::to_string(getpid()) + " of "));

  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string owner = NewLeaseOwner();
    _exit(write(ends[1], owner.data(), owner.size()) < 0 ? 1 : pause());
  }
  close(ends[1]);
  char owner[1024];
  const ssize_t n_bytes = read(ends[0], owner, sizeof(owner));
  REQUIRE(n_bytes > 0);
  close(ends[0]);
  const std::string other(owner, static_cast<size_t>(n_bytes));
  CHECK_FALSE(HasEnded(other));
  kill(child, SIGKILL);
  siginfo_t ended;
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  CHECK(HasEnded(other));  // nobody has reaped it yet
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(HasEnded(other));
}

TEST_CASE("nothing is known about processes of other machines") {
  CHECK_FALSE(HasEnded(""));
  CHECK_FALSE(HasEnded("elsewhere/4194305/1/boot,pid:[1]/abc"));
}

}  // namespace
}  // namespace stagecoach::router
