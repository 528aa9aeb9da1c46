// Recurrent layers. Three kernels: the convolution and all else that rows have of their own; the
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
struct RecurrencePlan {
  const int32_t* n_seqs;  // [1]
  const SeqSave* saves;  // [n_seqs], in place of RecurrenceArgs::saves: a recording reads them anew
  int32_t max_seqs;      // known on the host: upper bound of *n_seqs
};

// See Ops::Recurrence. A head's matrix has blocks of 32 columns. REQUIRES:
// key_dim <= kMaxGpuRecurrentKeys. Errors are launch errors.
cudaError_t Recurrence(const Stream& stream, const RecurrenceArgs& args,
                       const RecurrencePlan& plan);

// The kernels. MixChannels fills RecurrenceArgs::mixed. In `projected` it replaces b by sigmoid(b)
// and a by the decay; in a state-space layer, a by dt. RunStates replaces v in `mixed` by the
// outputs of the heads. FinishHeads makes RecurrenceArgs::out of them.
cudaError_t MixChannels(const Stream& stream, const RecurrenceArgs& args,
                        const RecurrencePlan& plan);
cudaError_t RunStates(const Stream& stream, const RecurrenceArgs& args, const RecurrencePlan& plan);
cudaError_t FinishHeads(const Stream& stream, const RecurrenceArgs& args);

}  // namespace stagecoach::kernels::cuda
