// What the router tells whoever started it, in lines of its standard output: which workers are
// stalled, and when a pipeline works again. `stagecoach serve` reads them (cli/launch/cluster.cpp).
#pragma once

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace stagecoach::router {

// Thread-safe.
class LauncherLines {
 public:
  explicit LauncherLines(size_t n_pipelines) : stalled_(n_pipelines) {}

  // "stalled ADDRESS...": all workers that are stalled now, whenever that changes.
  void SetStalled(size_t pipeline, std::vector<std::string> addresses);
  // "replace ADDRESS...": asks for other workers there, because these would never answer.
  void AskToReplace(const std::vector<std::string>& addresses);
  // "restored": a pipeline that had lost workers works again.
  void SayRestored();

 private:
  Mutex mutex_;
  std::vector<std::vector<std::string>> stalled_ ABSL_GUARDED_BY(mutex_);  // by pipeline
};

}  // namespace stagecoach::router
