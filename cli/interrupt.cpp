#include "cli/interrupt.h"

#include <cstdlib>

namespace stagecoach::cli {

Interrupt::Interrupt()
    : watcher_([this] {
        while (const int signal = signals_.Wait()) {
          if (!notes_first_ || signal_ != 0) std::_Exit(kExitBySignal + signal);
          signal_ = signal;
          if (then_) then_();
        }
      }) {}

Interrupt::~Interrupt() {
  signals_.Interrupt();
  watcher_.join();
}

}  // namespace stagecoach::cli
