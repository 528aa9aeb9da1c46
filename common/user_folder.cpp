#include "common/user_folder.h"

#include <cstdlib>

namespace stagecoach {

std::filesystem::path UserFolder(const char* variable, std::string_view below_home) {
  const auto folder_of = [](const char* name) -> std::filesystem::path {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  std::filesystem::path base = folder_of(variable);
  if (base.empty()) {
    base = folder_of("HOME");
    if (!base.empty()) base /= below_home;
  }
  return base.empty() ? base : base / "stagecoach";
}

}  // namespace stagecoach
