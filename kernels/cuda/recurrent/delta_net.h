// Gated delta nets. Three kernels: the convolution and all else that rows have of their own; the
// states, row after row of a sequence; norm and gate of what the states gave. A row's result
// depends on nothing but the rows before it, in any mode.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/recurrent_args.h"

namespace stagecoach::kernels::cuda {

// A sequence's StateSave; n_rows 0: it has none.
struct SeqSave {
  int32_t n_rows, to;
};

// What a step says about its sequences, beside StepInputs. Pointers are to device memory.
struct DeltaNetPlan {
  const int32_t* n_seqs;  // [1]
  const SeqSave* saves;   // [n_seqs], in place of DeltaNetArgs::saves: a recording reads them anew
  int32_t max_seqs;       // known on the host: upper bound of *n_seqs
};

// See Ops::DeltaNet. A head's matrix has blocks of 32 columns. REQUIRES:
// key_dim <= kMaxGpuRecurrentKeys. Errors are launch errors.
cudaError_t DeltaNet(const Stream& stream, const DeltaNetArgs& args, const DeltaNetPlan& plan);

// The kernels. MixChannels fills DeltaNetArgs::mixed, and replaces b by sigmoid(b) and a by the
// decay in `projected`. RunStates replaces v in `mixed` by the outputs of the heads. FinishHeads
// makes DeltaNetArgs::out of them.
cudaError_t MixChannels(const Stream& stream, const DeltaNetArgs& args, const DeltaNetPlan& plan);
cudaError_t RunStates(const Stream& stream, const DeltaNetArgs& args, const DeltaNetPlan& plan);
cudaError_t FinishHeads(const Stream& stream, const DeltaNetArgs& args);

}  // namespace stagecoach::kernels::cuda
