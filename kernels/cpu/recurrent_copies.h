// Operations of recurrent layers and gates that only move values.
#pragma once

#include "kernels/cpu/thread_pool.h"
#include "kernels/recurrent_args.h"

namespace stagecoach::kernels {

void CpuSplitGate(const SplitGateArgs& args, ThreadPool& pool);
void CpuCopyStates(const CopyStatesArgs& args, ThreadPool& pool);

}  // namespace stagecoach::kernels
