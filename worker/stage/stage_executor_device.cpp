// Steps that pass hidden states and tokens from device to device. All work is queued; only the
// finish thread waits.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status.h"
#include "worker/stage/stage_executor.h"

namespace stagecoach::worker {

absl::Status StageExecutor::RunStepOnDevice(KnownStep& step) {
  const StepMetaView& meta = step.view;
  slots_.Apply(meta, step.sampling);
  if (masks_ != nullptr) masks_->Apply(meta, step.grammars);
  batch_.Build(meta, slots_);
  SC_RETURN_IF_ERROR(kv_copies_.Begin(meta, &kv_after_));
  SC_RETURN_IF_ERROR(device_->Stamp(meta.step, StepPoint::kBegun));
  SC_RETURN_IF_ERROR(config_.is_first() ? TakeTokensOnDevice(meta) : TakeHiddenOnDevice(meta));
  SC_RETURN_IF_ERROR(device_->Stamp(meta.step, StepPoint::kInputHere));
  input_ = Record(meta.step, FlightTime::kInput);
  Forward(meta);
  return StartEndOnDevice(step);
}

absl::Status StageExecutor::TakeTokensOnDevice(const StepMetaView& meta) {
  if (batch_.FillTokens(meta, slots_, /*sampled_here=*/true) > 0) {
    return absl::InternalError(
        absl::StrCat("step ", meta.step,
                     " needs more than one sampled token of a sequence that is not known yet"));
  }
  uint64_t sampled_in = 0;
  for (size_t i = 0; i < meta.n_slots(); ++i) {
    const uint32_t slot = meta.slots[i];
    if (slots_.tokens(slot).size() < size_t{meta.starts[i]} + meta.n_tokens[i]) {
      sampled_in = std::max(sampled_in, sampled_in_[slot]);
    }
    if (meta.samples(i)) sampled_in_[slot] = meta.step;
  }
  if (sampled_in == 0) return absl::OkStatus();
  return device_->ReceiveTokens(sampled_in, model_->sampled_tokens());
}

absl::Status StageExecutor::TakeHiddenOnDevice(const StepMetaView& meta) {
  if (meta.n_rows == 0) return absl::OkStatus();
  SC_ASSIGN_OR_RETURN(const bool arrived, device_->ReceiveHidden(meta.step, model_->passed_buffer(),
                                                                 HiddenBytes(meta.n_rows)));
  MutexLock lock(mutex_);
  // The device was idle and waited for work that is queued only now.
  if (arrived && n_started_ == n_computed_) {
    counted_.stats.set_metadata_late_steps(counted_.stats.metadata_late_steps() + 1);
  }
  return absl::OkStatus();
}

absl::Status StageExecutor::StartEndOnDevice(const KnownStep& step) {
  const StepMetaView& meta = step.view;
  StartedStep started = NewStarted(meta);
  SC_ASSIGN_OR_RETURN(started.end, free_ends_.Pop());
  if (config_.is_last()) {
    SC_RETURN_IF_ERROR(StartResult(meta, ends_[started.end]));
  }
  SC_RETURN_IF_ERROR(device_->Stamp(meta.step, StepPoint::kComputed));
  // After a failed call the buffers hold garbage, which must not be sent.
  SC_RETURN_IF_ERROR(ops_->Failure());
  if (!config_.is_last() && meta.n_rows > 0) {
    SC_RETURN_IF_ERROR(
        device_->SendHidden(meta.step, model_->passed_buffer(), HiddenBytes(meta.n_rows)));
  } else if (config_.is_last() && meta.samples_any()) {
    SC_RETURN_IF_ERROR(device_->SendTokens(meta.step, model_->sampled_tokens()));
  }
  SC_RETURN_IF_ERROR(device_->Stamp(meta.step, StepPoint::kEnded));
  started.mark = ops_->Mark();
  {
    MutexLock lock(mutex_);
    ++n_started_;
  }
  return ops_->runs_ahead() ? started_.Push(std::move(started)) : Finish(std::move(started));
}

}  // namespace stagecoach::worker
