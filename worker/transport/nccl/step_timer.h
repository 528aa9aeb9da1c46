// Measures the parts of a step on the device, with events on the compute stream.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/status.h"
#include "worker/transport/device_channels.h"
#include "worker/transport/nccl/cuda_event.h"

namespace stagecoach::worker {

class StepTimer {
 public:
  absl::Status Init() {
    for (auto& step : steps_) {
      for (CudaEvent& event : step) {
        SC_ASSIGN_OR_RETURN(event, CudaEvent::Make(CudaEvent::Use::kTime));
      }
    }
    return absl::OkStatus();
  }
  absl::Status Stamp(uint64_t step, StepPoint point, cudaStream_t compute) const {
    return steps_[step % steps_.size()][static_cast<size_t>(point)].Record(compute);
  }
  // REQUIRES: all points of the step are reached.
  absl::StatusOr<StepTimes> Times(uint64_t step) const {
    const auto& events = steps_[step % steps_.size()];
    const auto between = [&](StepPoint begin, StepPoint end) {
      return events[static_cast<size_t>(end)].MsSince(events[static_cast<size_t>(begin)]);
    };
    StepTimes times;
    SC_ASSIGN_OR_RETURN(times.wait_input_ms, between(StepPoint::kBegun, StepPoint::kInputHere));
    SC_ASSIGN_OR_RETURN(times.compute_ms, between(StepPoint::kInputHere, StepPoint::kComputed));
    SC_ASSIGN_OR_RETURN(times.wait_send_ms, between(StepPoint::kComputed, StepPoint::kEnded));
    return times;
  }

 private:
  std::array<std::array<CudaEvent, kStepPoints>, DeviceChannels::kStepsAtOnce> steps_;
};

}  // namespace stagecoach::worker
