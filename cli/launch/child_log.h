// What one child writes to its standard error: passed on under its name, the end of it kept to
// explain a failure.
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

  // `echo`: write the lines to our standard error, under the name.
  ChildLog(std::string name, bool echo, LogFormat format = LogFormat::kText);

  const std::string& name() const { return name_; }
  void Add(std::string_view line);
  // What the launcher knows of the child, whether its own lines are echoed or not.
  void Say(std::string_view line) const;
  // Why the child ended, in one line and perhaps indented ones: its own "error: ..." message if it
  // gave one, else how it ended and what it wrote last.
  std::string Cause(const ChildExit& exit) const;

 private:
  const std::string name_;
  const bool echo_;
  const LogFormat format_;
  mutable Mutex mutex_;
  std::deque<std::string> last_lines_ ABSL_GUARDED_BY(mutex_);  // at most kKeptLines
  std::string error_ ABSL_GUARDED_BY(mutex_);  // not echoed: the launcher reports it once
};

}  // namespace stagecoach::launch
