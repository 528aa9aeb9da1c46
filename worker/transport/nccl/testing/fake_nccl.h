// NCCL's functions for emulated GPUs: messages pass through Unix sockets, between processes as well
// as in one. Like NCCL, it does not notice that a peer is gone: what is under way then waits until
// it is aborted.
#pragma once

#include <cstdint>

#include "worker/transport/nccl/nccl_api.h"

namespace stagecoach::worker {

const NcclApi* FakeNccl();

// Of this process, all communicators. Thread-safe.
void FreezeFakeNccl(bool frozen);  // messages stay where they are until it is undone, or aborted
void BlockFakeNcclLaunches(bool blocking);  // as CUDA_LAUNCH_BLOCKING=1; before communicators
void FailFakeNcclSends(bool failing);       // calls fail
void DelayFakeNccl(uint32_t seed);          // messages take up to a millisecond; 0: they do not
void CutFakeNcclReceives(int n);            // the next n end with nothing received, as by an abort
// As NCCL does with a communicator's first message, it allocates memory, which waits until no
// message is under way on the device. Senders come to it later than receivers.
void AllocateInFakeNccl(bool allocates);
int64_t FakeNcclCommunicators();  // that are not aborted

}  // namespace stagecoach::worker
