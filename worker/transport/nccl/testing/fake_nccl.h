// NCCL's functions for emulated GPUs. Messages pass through Unix sockets, within a process and
// between processes. Like NCCL, the fake does not detect that a peer is gone: its messages wait
// until they are aborted.
#pragma once

#include <cstdint>
#include <functional>

#include "worker/transport/nccl/nccl_api.h"

namespace stagecoach::worker {

const NcclApi* FakeNccl();

// These affect all communicators of this process. Thread-safe.
void FreezeFakeNccl(bool frozen);  // messages do not move until this is undone or they are aborted
void BlockFakeNcclLaunches(bool blocking);  // as CUDA_LAUNCH_BLOCKING=1; before communicators
void FailFakeNcclSends(bool failing);       // send calls fail
void DelayFakeNccl(uint32_t seed);          // messages take up to a millisecond; 0: no delay
void CutFakeNcclReceives(int n);  // the next n receives end without data, like after an abort
// Allocates memory with a communicator's first message, like NCCL. The allocation waits until no
// message is in progress on the device. Senders allocate later than receivers.
void AllocateInFakeNccl(bool allocates);
// Called at each abort, after FakeNcclCommunicators() has changed; empty: nothing is called.
void OnFakeNcclAbort(std::function<void()> aborted);
int64_t FakeNcclCommunicators();  // number of communicators not aborted

}  // namespace stagecoach::worker
