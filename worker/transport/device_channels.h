// Channels that pass hidden states and tokens from device to device. The compute thread only queues
// operations that order its own work with the messages, so no step waits for a peer on the host.
//
// Steps are named in order. All calls return the reason once the epoch is closed. Device work
// queued behind a message then ends with meaningless values, so a step counts only after Finish has
// confirmed it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stagecoach::worker {

// Times of one step, on the device.
struct StepTimes {
  double wait_input_ms = 0;
  double compute_ms = 0;
  double wait_send_ms = 0;
};

enum class StepPoint : uint8_t { kBegun, kInputHere, kComputed, kEnded };
inline constexpr size_t kStepPoints = 4;

// The largest messages. Buffers are allocated for these sizes.
struct LinkSizes {
  int32_t stage = 0;
  int32_t n_stages = 1;
  size_t hidden_bytes = 0;  // of max_batched_tokens rows
  size_t token_bytes = 0;   // [max_sequences] int32
};

class DeviceChannels {
 public:
  virtual ~DeviceChannels() = default;

  // Metadata thread: announces the messages of a step for this stage, so that they can be received
  // in advance. hidden_bytes is 0 on the first stage and in steps without rows. has_tokens: on the
  // first stage, if the step samples.
  virtual absl::Status Expect(uint64_t step, size_t hidden_bytes, bool has_tokens) = 0;

  // The following calls belong to the compute thread; pointers are to device memory. Stamp records
  // the device time at which the step reaches `point`. All four points are stamped, in order.
  virtual absl::Status Stamp(uint64_t step, StepPoint point) = 0;
  // Receives the hidden states of an expected step, ordered after the device work queued so far and
  // before work queued later. Returns whether they had already arrived.
  virtual absl::StatusOr<bool> ReceiveHidden(uint64_t step, void* hidden, size_t bytes) = 0;
  // Receives the last sampled token of each slot, as of `step` or a later step: [max_sequences].
  virtual absl::Status ReceiveTokens(uint64_t step, int32_t* sampled) = 0;
  virtual absl::Status SendHidden(uint64_t step, const void* hidden, size_t bytes) = 0;
  virtual absl::Status SendTokens(uint64_t step, const int32_t* sampled) = 0;

  // Any thread, in step order, after the device has reached kEnded. At most kStepsAtOnce steps may
  // be between their first stamp and this call.
  virtual absl::StatusOr<StepTimes> Finish(uint64_t step) = 0;
  static constexpr size_t kStepsAtOnce = 4;
};

}  // namespace stagecoach::worker
