// Hidden states and tokens that pass from device to device: the compute thread only queues what
// orders its own work with them, and nothing of a step waits for a peer on the host.
//
// Steps are named in their order. All calls return the reason once the epoch is closed; a device's
// work that was queued behind a message then ends with meaningless values, so that a step counts
// only after Finish said so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stagecoach::worker {

// Of one step, on the device.
struct StepTimes {
  double wait_input_ms = 0;
  double compute_ms = 0;
  double wait_send_ms = 0;
};

enum class StepPoint : uint8_t { kBegun, kInputHere, kComputed, kEnded };
inline constexpr size_t kStepPoints = 4;

// The largest messages: what buffers are allocated for.
struct LinkSizes {
  int32_t stage = 0;
  int32_t n_stages = 1;
  size_t hidden_bytes = 0;  // [max_batched_tokens, hidden_size] float32
  size_t token_bytes = 0;   // [max_sequences] int32
};

class DeviceChannels {
 public:
  virtual ~DeviceChannels() = default;

  // Metadata thread: what the step brings to this stage, so that it can be received ahead.
  // hidden_bytes: 0 on the first stage and in steps without rows. has_tokens: on the first stage,
  // when the step samples.
  virtual absl::Status Expect(uint64_t step, size_t hidden_bytes, bool has_tokens) = 0;

  // The rest is the compute thread's; pointers are to device memory.
  // That the step is at this point, of its device's time. All four are stamped, in their order.
  virtual absl::Status Stamp(uint64_t step, StepPoint point) = 0;
  // The hidden states of an expected step, after the work queued so far and before that queued
  // next. The value: whether they were here already.
  virtual absl::StatusOr<bool> ReceiveHidden(uint64_t step, float* hidden, size_t bytes) = 0;
  // The tokens last sampled for each slot, as of `step` or a later one: [max_sequences].
  virtual absl::Status ReceiveTokens(uint64_t step, int32_t* sampled) = 0;
  virtual absl::Status SendHidden(uint64_t step, const float* hidden, size_t bytes) = 0;
  virtual absl::Status SendTokens(uint64_t step, const int32_t* sampled) = 0;

  // Any thread, in step order, after the device has come to kEnded. At most kStepsAtOnce steps are
  // between their first stamp and this.
  virtual absl::StatusOr<StepTimes> Finish(uint64_t step) = 0;
  static constexpr size_t kStepsAtOnce = 4;
};

}  // namespace stagecoach::worker
