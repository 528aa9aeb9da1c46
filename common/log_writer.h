// Writes standard error on a separate thread, so that a caller continues at once even if nobody
// reads standard error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "common/mutex.h"

namespace stagecoach {

// A bounded queue of texts. If more than `max_bytes` wait, the oldest texts are dropped and
// counted; the next text that goes out reports the count. Thread-safe. The object lives until the
// process ends, because its thread may be inside a write that never returns.
class LogWriter {
 public:
  // Makes the text that reports n dropped texts.
  using LostText = std::function<std::string(uint64_t n)>;

  LogWriter(int fd, size_t max_bytes);
  ~LogWriter() = delete;

  // Queues a whole text, including its end of line. Blocks at most for the time that the queue's
  // lock is held to move a text.
  void Write(std::string text);
  // Returns true once everything written before has gone out, false after `most`.
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

// Writes to standard error, each text as one write. The first call starts the thread.
void WriteStderr(std::string text);
// Waits until the texts written so far have gone out. Runs automatically at a normal exit; call it
// before std::_Exit.
bool FlushStderr(std::chrono::milliseconds most = std::chrono::milliseconds(500));
// Sets the report of dropped lines for the text format. InitLog sets the one for its own format.
void SetLostStderrText(LogWriter::LostText text);

}  // namespace stagecoach
