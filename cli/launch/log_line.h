// The children's lines in the launcher's log, under their names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stagecoach::launch {

enum class LogFormat { kText, kJson };  // the formats of InitLog

// A child's line, with its line feed. A line of the child's logger keeps its time and level, and
// gets the child's name in place of the program's. Any other line, for example of a library,
// becomes a new log line.
std::string ChildLine(LogFormat format, std::string_view child, std::string_view line);

// Why a child ends, if the line says it (see LogFatal).
std::optional<std::string> FatalMessage(LogFormat format, std::string_view line);

}  // namespace stagecoach::launch
