// Drains pipelines of a running router, and adds others. A drained pipeline is one that is lost for
// good on purpose, when its sequences have ended or moved.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/unique_fd.h"
#include "router/dispatch/pipeline_setup.h"
#include "router/launcher_lines.h"
#include "router/pipeline_metrics.h"
#include "router/replicas/replica_set.h"
#include "router/served_pipelines.h"
#include "stagecoach/v1/replicas.pb.h"

namespace stagecoach::router {

// Thread-safe. Calls may block for as long as a load or a request takes.
class ReplicaChanges {
 public:
  // All of it outlives the object.
  struct Context {
    const ModelSpec* spec = nullptr;
    PipelineOptions options;  // without addresses
    std::string model_name;   // of metrics
    Pipelines* pipelines = nullptr;
    ReplicaSet* scheduler = nullptr;
    PipelineMetrics* metrics = nullptr;
    LauncherLines* launcher_lines = nullptr;
    // The launcher sends "ok ADDRESS..." or "failed REASON" after LauncherLines::AskToAdd. Absent:
    // no launcher can start workers.
    UniqueFd launcher;
    // Makes the pipeline with the next number, which counts as present from now on.
    std::function<std::unique_ptr<ServedPipeline>(const PipelineOptions&, Pipeline)> make;
    // A pipeline was drained, or never began to serve.
    std::function<void(const absl::Status&)> on_left;
  };
  explicit ReplicaChanges(Context context) : context_(std::move(context)) {}

  std::vector<v1::ReplicaStatus> List() const;
  // The errors are those of replicas.proto. After Stop: CANCELLED.
  absl::Status Drain(size_t replica, bool move);
  // Returns the new replica's number. No addresses: the launcher starts workers.
  absl::StatusOr<size_t> Add(std::vector<std::string> addresses);

  // Cancels what goes on. Nothing changes after it returns.
  void Stop();

 private:
  absl::Status SetUp(const std::vector<std::string>& addresses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  absl::Status CheckWorkers(const std::vector<std::string>& addresses) const;
  absl::StatusOr<std::vector<std::string>> AskLauncher() ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  // A pipeline that was not left.
  const ServedPipeline& Present() const;

  Context context_;
  std::stop_source stop_;
  Mutex changing_;  // one change of the list at a time
};

}  // namespace stagecoach::router
