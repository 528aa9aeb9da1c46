#include "common/log_writer.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <thread>
#include <utility>

namespace stagecoach {
namespace {

// Room for some thousand lines.
constexpr size_t kMaxHeldBytes = 1 << 20;

LogWriter& Stderr() {
  static LogWriter* const writer = [] {
    auto* made = new LogWriter(STDERR_FILENO, kMaxHeldBytes);
    std::atexit([] { FlushStderr(); });
    return made;
  }();
  return *writer;
}

}  // namespace

LogWriter::LogWriter(int fd, size_t max_bytes)
    : fd_(fd), max_bytes_(max_bytes), lost_text_([](uint64_t n) {
        return fmt::format("{} log lines are lost because nobody read standard error\n", n);
      }) {
  std::thread([this] { Run(); }).detach();
}

void LogWriter::Write(std::string text) {
  {
    const MutexLock lock(mutex_);
    n_bytes_ += text.size();
    texts_.push_back(std::move(text));
    while (n_bytes_ > max_bytes_ && texts_.size() > 1) {
      n_bytes_ -= texts_.front().size();
      texts_.pop_front();
      ++n_lost_;
    }
  }
  written_.notify_one();
}

bool LogWriter::Flush(std::chrono::milliseconds most) {
  MutexLock lock(mutex_);
  return drained_.wait_for(lock, most, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return texts_.empty() && !writing_;
  });
}

void LogWriter::SetLostText(LostText text) {
  const MutexLock lock(mutex_);
  lost_text_ = std::move(text);
}

void LogWriter::Run() {
  pthread_setname_np(pthread_self(), "log");
  MutexLock lock(mutex_);
  while (true) {
    written_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !texts_.empty(); });
    std::string text;
    if (n_lost_ > 0) {
      text = lost_text_(std::exchange(n_lost_, 0));
    } else {
      text = std::move(texts_.front());
      texts_.pop_front();
      n_bytes_ -= text.size();
    }
    writing_ = true;
    lock.unlock();
    WriteAll(text);
    lock.lock();
    writing_ = false;
    if (texts_.empty()) drained_.notify_all();
  }
}

// If a text cannot be written because the reader has closed its end, the text is discarded.
void LogWriter::WriteAll(const std::string& text) const {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd_, text.data() + done, text.size() - done);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {  // another process that shares this descriptor may have
                                            // made it non-blocking
      pollfd ready{fd_, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (n == 0 || errno != EINTR) {
      return;
    }
  }
}

void WriteStderr(std::string text) { Stderr().Write(std::move(text)); }
bool FlushStderr(std::chrono::milliseconds most) { return Stderr().Flush(most); }
void SetLostStderrText(LogWriter::LostText text) { Stderr().SetLostText(std::move(text)); }

}  // namespace stagecoach
