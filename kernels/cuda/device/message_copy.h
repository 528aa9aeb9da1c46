// Copies of messages between stages, with a seal behind the payload that says whose message it is.
//
// NCCL does not tell a message that an abort has cut off from a whole one: its operation ends, and
// the buffer holds what came. So a message ends with a seal, its epoch and step, which arrives
// last. Whoever copies the message checks the seal on the device. Once a seal was wrong, the
// stage's own messages are sealed as broken: what was computed from a broken message is never taken
// for whole by a stage further on.
//
// The copies are kernels: a large cudaMemcpyAsync takes a copy engine, whose queue it may share
// with copies of other streams that wait for what a neighbour sends later.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {

struct MessageSeal {
  uint64_t epoch = 0;
  uint64_t step = 0;  // not 0
};
// Four 32-bit words: the epoch's low and high one, the step's low and high one.
inline constexpr size_t kMessageSealBytes = 16;

// The first step whose message had a wrong seal; 0: none. Both are zero when an epoch begins.
struct BrokenStep {
  uint64_t* device = nullptr;  // device memory: what later kernels of the stream read
  uint64_t* host = nullptr;    // pinned memory: what the host reads behind an event of the stream
};

// message: [n_bytes + kMessageSealBytes]; n_bytes: a multiple of 4. Errors are those of the launch.
cudaError_t SealMessage(cudaStream_t stream, const void* payload, void* message, size_t n_bytes,
                        const MessageSeal& seal, const BrokenStep& broken);
// payload: [n_bytes], written in any case.
cudaError_t OpenMessage(cudaStream_t stream, const void* message, void* payload, size_t n_bytes,
                        const MessageSeal& seal, const BrokenStep& broken);

}  // namespace stagecoach::kernels::cuda
