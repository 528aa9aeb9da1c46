// Formats the lines of the launcher's log: its own lines, and the children's under their names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stagecoach::launch {

enum class LogFormat { kText, kJson };  // the formats of InitLog

// A line of the launcher's own, with its line feed. `level` is a level of the JSON format: "info",
// "critical".
std::string OwnLine(LogFormat format, std::string_view level, std::string_view program,
                    std::string_view message);

// A child's line, with its line feed. A line of the child's logger keeps its time and level, and
// gets the child's name in place of the program's. Any other line, for example of a library,
// becomes a new log line.
std::string ChildLine(LogFormat format, std::string_view child, std::string_view line);

// Why a child ends, if the line says it (see LogFatal).
std::optional<std::string> FatalMessage(LogFormat format, std::string_view line);

// Why the launcher ends: "error: message", or a JSON object of level "critical".
std::string FatalLine(LogFormat format, std::string_view message);

}  // namespace stagecoach::launch
