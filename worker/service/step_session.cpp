#include "worker/service/step_session.h"

#include <fmt/format.h>

#include <utility>

#include "common/rpc/status.h"
#include "common/status.h"

namespace stagecoach::worker {

StepSession::StepSession(std::shared_ptr<StageExecutor> executor, uint64_t epoch,
                         std::function<void()> on_end)
    : executor_(std::move(executor)), epoch_(epoch), on_end_(std::move(on_end)) {
  StartRead(&request_);
}

void StepSession::OnReadDone(bool ok) {
  if (!ok) {
    // In this order: an orderly end is OK, not the CANCELLED that the epoch ends with.
    End(absl::OkStatus());
    executor_->Close(absl::CancelledError("the router ended the step stream"));
    return;
  }
  if (absl::Status status = Take(request_); !status.ok()) {
    executor_->Close(status);
    End(status);
    return;
  }
  request_.Clear();
  StartRead(&request_);
}

absl::Status StepSession::Take(v1::StepRequest& request) {
  if (attached_) {
    if (!request.has_plan()) return absl::InvalidArgumentError("a step request without a plan");
    return executor_->Submit(std::move(*request.mutable_plan()));
  }
  if (!request.has_hello()) return absl::InvalidArgumentError("a step stream begins with a hello");
  if (request.hello().epoch() != epoch_) {
    return absl::FailedPreconditionError(fmt::format(
        "a hello of epoch {}, but this worker joined epoch {}", request.hello().epoch(), epoch_));
  }
  {
    std::lock_guard lock(mutex_);
    v1::StepResponse ready;
    ready.mutable_ready()->set_epoch(epoch_);
    responses_.push_back(std::move(ready));
    greeted_ = true;
    if (draining_) QueueDraining();
    WriteNext();
  }
  SC_RETURN_IF_ERROR(executor_->Attach(this));
  attached_ = true;
  return absl::OkStatus();
}

void StepSession::TellDraining() {
  std::lock_guard lock(mutex_);
  draining_ = true;
  if (greeted_) QueueDraining();
  WriteNext();
}

void StepSession::QueueDraining() {
  v1::StepResponse response;
  response.mutable_draining();
  responses_.push_back(std::move(response));
}

void StepSession::OnResult(v1::StepResult result) {
  v1::StepResponse response;
  *response.mutable_result() = std::move(result);
  std::lock_guard lock(mutex_);
  responses_.push_back(std::move(response));
  WriteNext();
}

void StepSession::OnClosed(const absl::Status& reason) { End(reason); }

void StepSession::OnCancel() {
  executor_->Close(absl::CancelledError("the router is gone"));
  End(absl::CancelledError("the router is gone"));
}

void StepSession::OnWriteDone(bool ok) {
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (ok) {
      WriteNext();
      return;
    }
    responses_.clear();
  }
  executor_->Close(absl::CancelledError("the router is gone"));
  End(absl::CancelledError("the router is gone"));
}

void StepSession::End(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (!ending_) {
    ending_ = true;
    status_ = status;
  }
  WriteNext();
}

void StepSession::WriteNext() {
  if (writing_ || finished_) return;
  if (!responses_.empty()) {
    writing_ = true;
    response_ = std::move(responses_.front());
    responses_.pop_front();
    StartWrite(&response_);
  } else if (ending_) {
    finished_ = true;
    Finish(ToGrpc(status_));
  }
}

void StepSession::OnDone() {
  if (attached_) executor_->Detach(this);
  on_end_();
  delete this;
}

}  // namespace stagecoach::worker
