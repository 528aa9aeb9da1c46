// Reports the progress of a load to the router, on a thread that the load cannot block. The router
// can therefore distinguish a load blocked by a file system from a slow one.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "common/mutex.h"
#include "common/work_counter.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::worker {

// The only writer to the load's stream while it lives. Thread-safe.
class LoadBeat {
 public:
  // A load that nobody wants any more is given up after this long without progress.
  static constexpr auto kGiveUp = std::chrono::seconds(10);

  // `work` grows with the load's progress, in addition to its bytes. `on_stuck` is called once if
  // the router is gone and the load does not end: its thread is then blocked and the process cannot
  // be used any more.
  LoadBeat(grpc::ServerContext* context, grpc::ServerWriter<v1::LoadProgress>* writer,
           std::shared_ptr<WorkCounter> work,
           std::function<void(const std::string& doing)> on_stuck);
  ~LoadBeat();  // sends a last message first

  void SetBytes(uint64_t done, uint64_t total);
  // For example "trying the largest step". While weights are read, the file's name is reported
  // without this call.
  void SetDoing(std::string doing);

 private:
  void Run(const std::stop_token& stop);
  v1::LoadProgress Read();

  grpc::ServerContext* const context_;
  grpc::ServerWriter<v1::LoadProgress>* const writer_;
  const std::shared_ptr<WorkCounter> work_;
  const std::function<void(const std::string&)> on_stuck_;
  Mutex mutex_;
  v1::LoadProgress progress_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: uses all above
};

}  // namespace stagecoach::worker
