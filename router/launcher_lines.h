// What the router tells whoever started it, in lines of its standard output: which workers are
// stalled, when a pipeline works again, and which replicas come and go. `stagecoach serve` reads
// them (cli/launch/cluster.cpp).
#pragma once

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace stagecoach::router {

// Thread-safe.
class LauncherLines {
 public:
  // "stalled ADDRESS...": all workers that are stalled now, whenever that changes.
  void SetStalled(size_t pipeline, std::vector<std::string> addresses);
  // "replace ADDRESS...": asks for other workers there, because these would never answer.
  void AskToReplace(const std::vector<std::string>& addresses);
  // "restored": a pipeline that had lost workers works again.
  void SayRestored();
  // "add N": asks for the workers of replica N. Their addresses come by another way.
  void AskToAdd(size_t replica);
  // "added ADDRESS...": these workers belong to a replica that gets requests now.
  void SayAdded(const std::vector<std::string>& addresses);
  // "drained ADDRESS...": these workers are not needed any more.
  void SayDrained(const std::vector<std::string>& addresses);

 private:
  void Say(const std::string& line);

  Mutex mutex_;
  std::vector<std::vector<std::string>> stalled_ ABSL_GUARDED_BY(mutex_);  // by pipeline
};

}  // namespace stagecoach::router
