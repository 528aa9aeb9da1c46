#include "cli/launch/child_log.h"

#include <fmt/format.h>

#include "common/log_writer.h"

namespace stagecoach::launch {
namespace {

bool IsIndented(std::string_view line) { return line.starts_with(' ') || line.starts_with('\t'); }

}  // namespace

ChildLog::ChildLog(std::string name, bool echo, LogFormat format)
    : name_(std::move(name)), echo_(echo), format_(format) {}

void ChildLog::Add(std::string_view line) {
  const MutexLock lock(mutex_);
  if (std::optional<std::string> fatal = FatalMessage(format_, line)) {
    error_ = *std::move(fatal);
    return;
  }
  if (!error_.empty() && IsIndented(line)) {
    error_.append("\n").append(line);
    return;
  }
  last_lines_.emplace_back(line);
  if (last_lines_.size() > kKeptLines) last_lines_.pop_front();
  // One write per line, so that lines of different children do not mix.
  if (echo_) WriteStderr(ChildLine(format_, name_, line));
}

void ChildLog::Say(std::string_view line) const {
  if (echo_) WriteStderr(ChildLine(format_, name_, line));
}

std::string ChildLog::Cause(const ChildExit& exit) const {
  const MutexLock lock(mutex_);
  if (!error_.empty()) return fmt::format("{}: {}", name_, error_);
  std::string cause = fmt::format("{} {}", name_, exit.Describe());
  if (!last_lines_.empty()) cause += "; it last wrote:";
  for (const std::string& line : last_lines_) cause += fmt::format("\n  {}", line);
  return cause;
}

}  // namespace stagecoach::launch
