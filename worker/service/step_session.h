// One router's step stream on a joined worker: plans in, results out, until either side ends it.
// The stream's end ends the epoch, and the other way round.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "stagecoach/v1/stage.pb.h"
#include "worker/stage/stage_executor.h"

namespace stagecoach::worker {

// Owns itself: deletes itself when gRPC is done with it.
class StepSession final : public grpc::ServerBidiReactor<v1::StepRequest, v1::StepResponse>,
                          private StepListener {
 public:
  struct Callbacks {
    // With the first message: the executor of the pipeline that was joined under this lease.
    std::function<absl::StatusOr<std::shared_ptr<StageExecutor>>(StepSession*, const v1::Lease&)>
        on_hello;
    // Last, if on_hello gave one.
    std::function<void()> on_end;
  };
  // `context` is the stream's.
  StepSession(grpc::CallbackServerContext* context, Callbacks callbacks);

  // Tells the router that this worker is to end, once it has been greeted.
  void TellDraining();
  // Ends the stream and its epoch with `reason`; what is queued is not written.
  void Revoke(const absl::Status& reason);
  // Ends the stream without a word, for a router that takes none.
  void Cancel();

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void OnResult(v1::StepResult result) override;
  void OnClosed(const absl::Status& reason) override;

  absl::Status Take(v1::StepRequest& request);
  // On a thread of its own, from the greeting on.
  void TellProgress(const StageExecutor& executor, const std::stop_token& stop);
  // Ends the stream with `status` once what is queued is written. The first status stays.
  void End(const absl::Status& status);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueDraining() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status Greet(const v1::Lease& lease);
  void CloseExecutor(const absl::Status& reason);

  grpc::CallbackServerContext* const context_;
  const Callbacks callbacks_;
  v1::StepRequest request_;    // the read under way
  v1::StepResponse response_;  // the write under way
  // Reads only, once they have attached. Held by executor_.
  StageExecutor* attached_ = nullptr;

  Mutex mutex_;
  std::shared_ptr<StageExecutor> executor_ ABSL_GUARDED_BY(mutex_);  // null before the hello
  std::deque<v1::StepResponse> responses_ ABSL_GUARDED_BY(mutex_);
  // The newest that is to be told.
  std::optional<v1::StepProgress> progress_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::jthread teller_;  // not guarded: of the first read and of the end
};

}  // namespace stagecoach::worker
