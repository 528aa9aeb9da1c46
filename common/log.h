// Log set-up. After InitLog, call spdlog::info("...", ...) and similar functions directly. They
// never block: if nobody reads standard error, lines are dropped and counted (log_writer.h).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace stagecoach {

// Lines go to standard error in the given `format`:
//   text  2026-01-31 12:00:00.123 I program: message
//   json  {"time":"2026-01-31T12:00:00.123Z","level":"info","program":"router","message":"..."},
//         plus "request_id" while a LogRequest is alive
// `level` is trace, debug, info, warning, error or off.
absl::Status InitLog(const std::string& program, const std::string& level,
                     const std::string& format = "text");

// Writes why the program ends: "error: MESSAGE", or a JSON object of level "critical". In text,
// further lines are indented, unless all of them are already. Waits for the write for at most
// 0.5 s. Before InitLog, the format is text.
void LogFatal(std::string_view message);

// While this object lives, log lines of the current thread carry the request's id. Text lines begin
// with the id. These objects do not nest. `id` must outlive the object.
class LogRequest {
 public:
  explicit LogRequest(const std::string& id);
  ~LogRequest();
  LogRequest(const LogRequest&) = delete;
  LogRequest& operator=(const LogRequest&) = delete;
};

}  // namespace stagecoach
