// Where the kernel keeps the limits of this process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagecoach {

// Folders with the files of control groups v2 and of one controller of v1 ("memory", "cpu"): this
// process's own, and the mount's root, which in a container is the one that is there. Some may not
// exist. `root` stands in for "/" in tests.
struct CgroupDirs {
  std::vector<std::string> v2, v1;
};
CgroupDirs FindCgroupDirs(const std::string& root, std::string_view controller);

}  // namespace stagecoach
