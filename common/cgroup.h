// Locates the control-group (cgroup) folders that hold this process's resource limits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagecoach {

// Folders that hold the control files of cgroups v2, and of one controller ("memory", "cpu") of
// cgroups v1. Each list has this process's own folder and the root of the mount; inside a container
// often only the root exists. A listed folder may not exist. `root` replaces "/" in tests.
struct CgroupDirs {
  std::vector<std::string> v2, v1;
};
CgroupDirs FindCgroupDirs(const std::string& root, std::string_view controller);

}  // namespace stagecoach
