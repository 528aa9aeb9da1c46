#include "cli/history_file.h"

#include <sys/stat.h>

#include <filesystem>

#include "common/user_folder.h"

namespace stagecoach::cli {

namespace fs = std::filesystem;

std::string DefaultHistoryPath() {
  const fs::path folder = UserFolder("XDG_STATE_HOME", ".local/state");
  return folder.empty() ? "" : (folder / "history").string();
}

bool MakeHistoryFolder(const std::string& path) {
  const fs::path folder = fs::absolute(path).parent_path();
  std::error_code failed;
  if (fs::is_directory(folder, failed)) return true;
  fs::create_directories(folder.parent_path(), failed);
  return mkdir(folder.c_str(), S_IRWXU) == 0;
}

}  // namespace stagecoach::cli
