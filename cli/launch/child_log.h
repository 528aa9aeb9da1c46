// Standard error of one child process. Lines are forwarded under the child's name, and the last
// ones are kept to explain a failure.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "cli/launch/child_process.h"
#include "cli/launch/log_line.h"
#include "common/mutex.h"

namespace stagecoach::launch {

// Thread-safe.
class ChildLog {
 public:
  static constexpr size_t kKeptLines = 8;

  // `echo`: write the child's lines and the launcher's own to our standard error, under the child's
  // name.
  ChildLog(std::string name, bool echo, LogFormat format = LogFormat::kText);

  const std::string& name() const { return name_; }
  void Add(std::string_view line);
  // Logs a line of the launcher about the child.
  void Say(std::string_view line) const;
  // Why the child ended: one line, which indented lines may follow. It is the child's own "error:
  // ..." message if it wrote one, else the exit status and the child's last lines.
  std::string Cause(const ChildExit& exit) const;

 private:
  const std::string name_;
  const bool echo_;
  const LogFormat format_;
  mutable Mutex mutex_;
  std::deque<std::string> last_lines_ ABSL_GUARDED_BY(mutex_);  // at most kKeptLines
  // The child's "error: ..." message. It is not echoed, because the launcher reports it once.
  std::string error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::launch
