// Asks the workers of a pipeline that is being restored again and again whether they answer. The
// calls of a recovery may take long, so their duration says nothing; any worker answers Describe at
// once, also while it loads.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "common/rpc/internal_access.h"

namespace stagecoach::router {

// Thread-safe.
class AnswerWatch {
 public:
  // A worker that accepts a connection, but does not answer for this long, is silent.
  static constexpr auto kSilence = std::chrono::seconds(1);
  // `addresses` of the silent workers, whenever that changes. One call at a time, on threads of the
  // watch; at its end, with an empty list, if it was not empty.
  using OnSilent = std::function<void(const std::vector<std::string>& addresses)>;

  // `addresses`: per stage.
  AnswerWatch(const std::vector<std::string>& addresses, const InternalAccess& access,
              OnSilent on_silent);
  ~AnswerWatch();  // on_silent is not called afterwards

 private:
  void Ask(size_t stage, const InternalAccess& access, const std::stop_token& stop);
  void SetSilent(size_t stage, bool silent);

  const std::vector<std::string> addresses_;
  const OnSilent on_silent_;
  Mutex mutex_;
  std::vector<bool> silent_ ABSL_GUARDED_BY(mutex_);  // per stage
  std::vector<std::jthread> threads_;                 // last: they use all above
};

}  // namespace stagecoach::router
