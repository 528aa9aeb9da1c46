// The file that keeps what was typed in conversations.
#pragma once

#include <string>

namespace stagecoach::cli {

// stagecoach/history in $XDG_STATE_HOME or ~/.local/state. Empty: neither variable is set.
std::string DefaultHistoryPath();

// Makes the file's folder, readable for this user alone. Returns whether it is there.
bool MakeHistoryFolder(const std::string& path);

}  // namespace stagecoach::cli
