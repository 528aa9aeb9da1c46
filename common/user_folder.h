// Folders of this user, as the XDG Base Directory Specification defines them.
#pragma once

#include <filesystem>
#include <string_view>

namespace stagecoach {

// "stagecoach" in the folder that `variable` names, such as XDG_CACHE_HOME, or else in
// `below_home`, such as ".cache", of the home directory. Empty if neither the variable nor HOME is
// set. The folder need not exist.
std::filesystem::path UserFolder(const char* variable, std::string_view below_home);

}  // namespace stagecoach
