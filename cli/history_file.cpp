#include "cli/history_file.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

namespace stagecoach::cli {

namespace fs = std::filesystem;

std::string DefaultHistoryPath() {
  const auto folder_of = [](const char* variable) -> fs::path {
    const char* const value = std::getenv(variable);
    return value == nullptr ? "" : value;
  };
  fs::path base = folder_of("XDG_STATE_HOME");
  if (base.empty() && !folder_of("HOME").empty()) base = folder_of("HOME") / ".local" / "state";
  return base.empty() ? "" : (base / "stagecoach" / "history").string();
}

bool MakeHistoryFolder(const std::string& path) {
  const fs::path folder = fs::absolute(path).parent_path();
  std::error_code failed;
  if (fs::is_directory(folder, failed)) return true;
  fs::create_directories(folder.parent_path(), failed);
  return mkdir(folder.c_str(), S_IRWXU) == 0;
}

}  // namespace stagecoach::cli
