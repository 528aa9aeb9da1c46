// Copies of messages between stages. A seal after the payload identifies the message.
//
// NCCL does not distinguish a message that an abort cut off from a complete one: the operation
// ends, and the buffer holds whatever arrived. So every message ends with a seal, its epoch and
// step, which arrives last. The kernel that copies a received message checks the seal on the
// device. After one wrong seal, the stage seals its own messages as broken. So no later stage
// accepts results that were computed from a broken message.
//
// The copies are kernels, not cudaMemcpyAsync. A large cudaMemcpyAsync uses a copy engine, and it
// may queue there behind copies of other streams that wait for a neighbour's later message.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {

struct MessageSeal {
  uint64_t epoch = 0;
  uint64_t step = 0;  // not 0
};
// Four 32-bit words: low and high word of the epoch, low and high word of the step.
inline constexpr size_t kMessageSealBytes = 16;

// The first step whose message had a wrong seal; 0: none. Both are set to zero when an epoch
// begins.
struct BrokenStep {
  uint64_t* device = nullptr;  // device memory, for later kernels of the stream
  uint64_t* host = nullptr;    // pinned memory, for the host after an event of the stream
};

// message: [n_bytes + kMessageSealBytes]; n_bytes is a multiple of 4. Both functions are
// asynchronous and return launch errors only.
cudaError_t SealMessage(cudaStream_t stream, const void* payload, void* message, size_t n_bytes,
                        const MessageSeal& seal, const BrokenStep& broken);
// payload: [n_bytes], written even if the seal is wrong.
cudaError_t OpenMessage(cudaStream_t stream, const void* message, void* payload, size_t n_bytes,
                        const MessageSeal& seal, const BrokenStep& broken);

}  // namespace stagecoach::kernels::cuda
