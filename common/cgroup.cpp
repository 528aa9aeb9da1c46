#include "common/cgroup.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_split.h"

namespace stagecoach {
namespace {

// Path of this process's cgroup in hierarchy "0" (v2) or of the controller (v1). Empty if the
// process has none.
std::string OwnPath(const std::string& root, bool v2, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::vector<std::string> names = absl::StrSplit(controllers, ',');
    const bool matches =
        v2 ? controllers.empty() : std::find(names.begin(), names.end(), controller) != names.end();
    if (matches) return line.substr(second + 1);
  }
  return "";
}

}  // namespace

CgroupDirs FindCgroupDirs(const std::string& root, std::string_view controller) {
  const std::string mount = root + "/sys/fs/cgroup";
  const std::string v1_mount = mount + "/" + std::string(controller);
  return {.v2 = {mount + OwnPath(root, true, controller), mount},
          .v1 = {v1_mount + OwnPath(root, false, controller), v1_mount}};
}

}  // namespace stagecoach
