// A router's step stream on a joined worker: plans in, results out, until either side ends it. The
// end of the stream ends the epoch, and vice versa.
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

// Owns itself: it deletes itself when gRPC is done with it.
class StepSession final : public grpc::ServerBidiReactor<v1::StepRequest, v1::StepResponse>,
                          private StepListener {
 public:
  struct Callbacks {
    // Called with the first message. Returns the executor of the pipeline joined under this lease.
    std::function<absl::StatusOr<std::shared_ptr<StageExecutor>>(StepSession*, const v1::Lease&)>
        on_hello;
    // Called last, if on_hello returned an executor.
    std::function<void()> on_end;
  };
  // `context` belongs to the stream.
  StepSession(grpc::CallbackServerContext* context, Callbacks callbacks);

  // Tells the router that this worker is about to exit; waits for the greeting first.
  void TellDraining();
  // Ends the stream and its epoch with `reason`. Queued messages are not written.
  void Revoke(const absl::Status& reason);
  // Ends the stream without a status, for a router that does not read.
  void Cancel();

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void OnResult(v1::StepResult result) override;
  void OnFetched(v1::KvFetched fetched) override;
  void OnClosed(const absl::Status& reason) override;

  absl::Status Take(v1::StepRequest& request);
  // Runs on a separate thread from the greeting on.
  void TellProgress(const StageExecutor& executor, const std::stop_token& stop);
  // Ends the stream with `status` after the queued messages are written. The first status is kept.
  void End(const absl::Status& status);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueDraining() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status Greet(const v1::Lease& lease);
  void CloseExecutor(const absl::Status& reason);

  grpc::CallbackServerContext* const context_;
  const Callbacks callbacks_;
  v1::StepRequest request_;    // the read in progress
  v1::StepResponse response_;  // the write in progress
  // Used by reads only; null before they have attached. executor_ keeps it alive.
  StageExecutor* attached_ = nullptr;

  Mutex mutex_;
  std::shared_ptr<StageExecutor> executor_ ABSL_GUARDED_BY(mutex_);  // null before the hello
  std::deque<v1::StepResponse> responses_ ABSL_GUARDED_BY(mutex_);
  // The newest progress to report.
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
