// Log set-up; after it, call spdlog::info("...", ...) and its like directly. They never block:
// lines that nobody reads are dropped, and counted (log_writer.h).
#pragma once

#include <string>

#include "absl/status/status.h"

namespace stagecoach {

// Lines go to standard error, as `format` says:
//   text  2026-01-31 12:00:00.123 I program: message
//   json  {"time":"2026-01-31T12:00:00.123Z","level":"info","program":"router","message":"..."},
//         with "request_id" inside a LogRequest
// Level: trace, debug, info, warning, error.
absl::Status InitLog(const std::string& program, const std::string& level,
                     const std::string& format = "text");

// What this thread logs while the object lives is about this request: text lines begin with the id.
// They do not nest. `id` outlives the object.
class LogRequest {
 public:
  explicit LogRequest(const std::string& id);
  ~LogRequest();
  LogRequest(const LogRequest&) = delete;
  LogRequest& operator=(const LogRequest&) = delete;
};

}  // namespace stagecoach
