// Lines of the launcher's log: the children's under their names, and its own.
#pragma once

#include <string>
#include <string_view>

namespace stagecoach::launch {

enum class LogFormat { kText, kJson };  // as InitLog has them

// A line of its own, with its end. `level` as JSON has it: "info", "critical".
std::string OwnLine(LogFormat format, std::string_view level, std::string_view program,
                    std::string_view message);

// A child's line with its end: one that its log has formatted keeps its time and level and gets the
// child's name for the program's; any other, as of a library, becomes a line of its own.
std::string ChildLine(LogFormat format, std::string_view child, std::string_view line);

// Why the launcher ends: "error: message", or an object of the level "critical".
std::string FatalLine(LogFormat format, std::string_view message);

}  // namespace stagecoach::launch
