#include "worker/service/step_session.h"

#include <grpcpp/server_context.h>
#include <pthread.h>

#include <chrono>
#include <utility>

#include "common/mutex.h"
#include "common/rpc/status.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(100);

}  // namespace

StepSession::StepSession(grpc::CallbackServerContext* context, Callbacks callbacks)
    : context_(context), callbacks_(std::move(callbacks)) {
  StartRead(&request_);
}

void StepSession::CloseExecutor(const absl::Status& reason) {
  std::shared_ptr<StageExecutor> executor;
  {
    MutexLock lock(mutex_);
    executor = executor_;
  }
  if (executor != nullptr) executor->Close(reason);
}

void StepSession::OnReadDone(bool ok) {
  if (!ok) {
    // In this order: a normal end must be reported as OK, not as the CANCELLED with which the epoch
    // ends.
    End(absl::OkStatus());
    CloseExecutor(absl::CancelledError("the router ended the step stream"));
    return;
  }
  if (absl::Status status = Take(request_); !status.ok()) {
    CloseExecutor(status);
    End(status);
    return;
  }
  request_.Clear();
  StartRead(&request_);
}

absl::Status StepSession::Take(v1::StepRequest& request) {
  if (attached_ != nullptr) {
    if (request.has_fetch()) {
      attached_->Fetch(std::move(*request.mutable_fetch()));
      return absl::OkStatus();
    }
    if (!request.has_plan()) return absl::InvalidArgumentError("the step request has no plan");
    return attached_->Submit(std::move(*request.mutable_plan()));
  }
  if (!request.has_hello()) {
    return absl::InvalidArgumentError("the first message of a step stream must be a hello");
  }
  return Greet(request.hello().lease());
}

absl::Status StepSession::Greet(const v1::Lease& lease) {
  SC_ASSIGN_OR_RETURN(std::shared_ptr<StageExecutor> executor, callbacks_.on_hello(this, lease));
  {
    MutexLock lock(mutex_);
    executor_ = executor;
    v1::StepResponse ready;
    *ready.mutable_ready()->mutable_lease() = lease;
    responses_.push_back(std::move(ready));
    greeted_ = true;
    if (draining_) QueueDraining();
    WriteNext();
  }
  SC_RETURN_IF_ERROR(executor->Attach(this));
  teller_ = std::jthread(
      [this, executor](const std::stop_token& stop) { TellProgress(*executor, stop); });
  attached_ = executor.get();
  return absl::OkStatus();
}

void StepSession::TellProgress(const StageExecutor& executor, const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "progress");
  while (!stop.stop_requested()) {
    {
      const v1::StepProgress progress = executor.Progress();
      const MutexLock lock(mutex_);
      if (!ending_) progress_ = progress;
      WriteNext();
    }
    WaitForStop(stop, kProgressInterval);
  }
}

void StepSession::TellDraining() {
  MutexLock lock(mutex_);
  draining_ = true;
  if (greeted_) QueueDraining();
  WriteNext();
}

void StepSession::Revoke(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    responses_.clear();
  }
  End(reason);
  CloseExecutor(reason);
}

void StepSession::Cancel() { context_->TryCancel(); }

void StepSession::QueueDraining() {
  v1::StepResponse response;
  response.mutable_draining();
  responses_.push_back(std::move(response));
}

void StepSession::OnResult(v1::StepResult result) {
  v1::StepResponse response;
  *response.mutable_result() = std::move(result);
  MutexLock lock(mutex_);
  responses_.push_back(std::move(response));
  WriteNext();
}

void StepSession::OnFetched(v1::KvFetched fetched) {
  v1::StepResponse response;
  *response.mutable_fetched() = std::move(fetched);
  MutexLock lock(mutex_);
  responses_.push_back(std::move(response));
  WriteNext();
}

void StepSession::OnClosed(const absl::Status& reason) { End(reason); }

void StepSession::OnCancel() {
  CloseExecutor(absl::CancelledError("the router is gone"));
  End(absl::CancelledError("the router is gone"));
}

void StepSession::OnWriteDone(bool ok) {
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (ok) {
      WriteNext();
      return;
    }
    responses_.clear();
  }
  CloseExecutor(absl::CancelledError("the router is gone"));
  End(absl::CancelledError("the router is gone"));
}

void StepSession::End(const absl::Status& status) {
  MutexLock lock(mutex_);
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
  } else if (progress_ && !ending_) {
    writing_ = true;
    *response_.mutable_progress() = *std::exchange(progress_, std::nullopt);
    StartWrite(&response_);
  } else if (ending_) {
    finished_ = true;
    Finish(ToGrpc(status_));
  }
}

void StepSession::OnDone() {
  teller_ = {};
  if (attached_ != nullptr) attached_->Detach(this);
  bool has_executor = false;
  {
    const MutexLock lock(mutex_);
    has_executor = executor_ != nullptr;
  }
  if (has_executor) callbacks_.on_end();
  delete this;
}

}  // namespace stagecoach::worker
