// Standard error by a thread of its own: whoever has something to say goes on at once, also while
// nobody reads it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "common/mutex.h"

namespace stagecoach {

// Bounded: where more waits than `max_bytes`, the oldest texts are dropped and counted, and the
// count is said when texts flow again. Thread-safe. Lives to the process's end, as its thread may
// be inside a write that never returns.
class LogWriter {
 public:
  // The text that tells of n texts that were dropped.
  using LostText = std::function<std::string(uint64_t n)>;

  LogWriter(int fd, size_t max_bytes);
  ~LogWriter() = delete;

  // A whole text, with its end of line. Never blocks for longer than a move of it.
  void Write(std::string text);
  // True when all that was written before is out; false after `most`.
  bool Flush(std::chrono::milliseconds most);
  void SetLostText(LostText text);

 private:
  void Run();
  void WriteAll(const std::string& text) const;

  const int fd_;
  const size_t max_bytes_;
  Mutex mutex_;
  CondVar written_, drained_;
  std::deque<std::string> texts_ ABSL_GUARDED_BY(mutex_);
  size_t n_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t n_lost_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  LostText lost_text_ ABSL_GUARDED_BY(mutex_);
};

// To standard error, each text as one write. The thread starts with the first.
void WriteStderr(std::string text);
// What is written goes out before the process ends, if somebody reads it. At an orderly end it is
// called by itself; call it before std::_Exit.
bool FlushStderr(std::chrono::milliseconds most = std::chrono::milliseconds(500));
// For the text format; InitLog sets it for its own.
void SetLostStderrText(LogWriter::LostText text);

}  // namespace stagecoach
