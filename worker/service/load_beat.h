// How a load gets on, told to the router by a thread that nothing of the load holds up: so a load
// that a file system holds up is told from a long one.
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

// Alone writes to the load's stream while it lives. Thread-safe.
class LoadBeat {
 public:
  // Without movement for so long, a load that nobody wants any more is given up.
  static constexpr auto kGiveUp = std::chrono::seconds(10);

  // `work` moves with the load beside its bytes. `on_stuck` is called, once, where the router is
  // gone and the load does not end: it holds its thread, and the process is of no more use.
  LoadBeat(grpc::ServerContext* context, grpc::ServerWriter<v1::LoadProgress>* writer,
           std::shared_ptr<WorkCounter> work,
           std::function<void(const std::string& doing)> on_stuck);
  ~LoadBeat();  // after a last message

  void SetBytes(uint64_t done, uint64_t total);
  // "trying the largest step"; while weights are read the file's name is found without it.
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
