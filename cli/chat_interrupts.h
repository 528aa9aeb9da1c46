// Signals during a conversation.
#pragma once

#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>

#include "cli/client.h"
#include "common/mutex.h"
#include "common/process.h"

namespace stagecoach::cli {

// ctrl-C stops the answer that is being printed; if there is none, it discards the line being
// typed. SIGTERM ends the program.
class ChatInterrupts {
 public:
  // answer_->Cancel() and when_idle_() are called on this object's thread, so they must be
  // thread-safe.
  ChatInterrupts()
      : thread_([this] {
          while (const int signal = signals_.Wait()) {
            const MutexLock lock(mutex_);
            if (signal == SIGTERM || (answer_ == nullptr && !when_idle_)) {
              std::_Exit(kExitBySignal + signal);
            }
            if (answer_ != nullptr) {
              answer_->Cancel();
            } else {
              when_idle_();
            }
          }
        }) {}
  ChatInterrupts(const ChatInterrupts&) = delete;
  ChatInterrupts& operator=(const ChatInterrupts&) = delete;
  ~ChatInterrupts() {
    signals_.Interrupt();
    thread_.join();
  }

  // An empty function: ctrl-C ends the program.
  void SetWhenIdle(std::function<void()> when_idle) {
    const MutexLock lock(mutex_);
    when_idle_ = std::move(when_idle);
  }
  // nullptr: no answer is being written.
  void SetAnswer(Canceller* answer) {
    const MutexLock lock(mutex_);
    answer_ = answer;
  }

 private:
  ShutdownSignals signals_;
  Mutex mutex_;
  Canceller* answer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::function<void()> when_idle_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace stagecoach::cli
