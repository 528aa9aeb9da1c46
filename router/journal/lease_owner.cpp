#include "router/journal/lease_owner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/proc_file.h"

namespace stagecoach::router {
namespace {

// Where a PID means something: this boot of this machine, and a PID namespace.
std::string PidSpace() {
  std::error_code missing;
  return ReadFirstLine("/proc/sys/kernel/random/boot_id").value_or("") + "," +
         std::filesystem::read_symlink("/proc/self/ns/pid", missing).string();
}

// When the process began, in ticks since the boot; empty: it has ended.
std::string BeginningOf(std::string_view pid) {
  const std::string stat = ReadFirstLine(fmt::format("/proc/{}/stat", pid)).value_or("");
  // After the program's name in parentheses: the state, and as the 20th field the beginning.
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string state, beginning;
  fields >> state;
  for (int i = 0; i < 19; ++i) fields >> beginning;
  const bool is_zombie = state == "Z" || state == "X";
  return fields && !is_zombie ? beginning : "";
}

}  // namespace

std::string NewLeaseOwner() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  const std::string pid = fmt::format("{}", getpid());
  return fmt::format("{}/{}/{}/{}/{:08x}", host, pid, BeginningOf(pid), PidSpace(),
                     std::random_device()());
}

std::string Describe(std::string_view owner) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(owner), '/');
  return parts.size() < 2 ? std::string(owner)
                          : fmt::format("process {} of {}", parts[1], parts[0]);
}

bool HasEnded(std::string_view owner) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(owner), '/');
  if (parts.size() < 5 || parts[2].empty() || parts[3] != PidSpace()) return false;
  return BeginningOf(parts[1]) != parts[2];
}

}  // namespace stagecoach::router
