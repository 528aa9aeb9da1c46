// One line in the log's format (see InitLog) from a signal handler.
#pragma once

#include <string_view>

namespace stagecoach {

enum class SignalLogLevel { kInfo, kCritical };  // kCritical: the program ends

// Writes `what`, `path` and `after` as one line to standard error. In the text format, "error: "
// precedes it if the program ends. Async-signal-safe: neither locks nor allocates. Waits at most
// `most_ms` for a reader. A line longer than 8 KiB is cut off.
void LogFromSignal(SignalLogLevel level, std::string_view what, std::string_view path,
                   std::string_view after, int most_ms);

// InitLog calls it. Before that, lines are text.
void SetSignalLogFormat(bool json, std::string_view program);

}  // namespace stagecoach
