// What links over NCCL, and other later allocations, need on a stage's device.
#pragma once

#include <cstdint>

namespace stagecoach::worker {

struct LinkNeeds {
  // Metadata and hidden states to each neighbour, plus tokens on the first and the last stage.
  int32_t communicators = 0;
  // SMs that waiting receives occupy while a step computes: one for tokens on the first stage, two
  // for metadata and hidden states on the others.
  int32_t multiprocessors = 0;
};

inline LinkNeeds LinkNeedsOf(int32_t stage, int32_t n_stages) {
  if (n_stages < 2) return {};
  return {.communicators = stage == 0 || stage + 1 == n_stages ? 3 : 4,
          .multiprocessors = stage == 0 ? 1 : 2};
}

// Device memory that a stage leaves free when it sizes the KV cache: for CUDA graphs (measured: 14
// to 24 MiB for 23 to 47 graphs), for the driver's later allocations, and for communicators.
inline uint64_t ReservedBytes(int32_t n_communicators) {
  constexpr uint64_t kOfSteps = uint64_t{64} << 20, kOfCommunicator = uint64_t{64} << 20;
  return kOfSteps + static_cast<uint64_t>(n_communicators) * kOfCommunicator;
}

}  // namespace stagecoach::worker
