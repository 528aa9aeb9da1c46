// Which devices can run a model, and what GPUs keep quantized.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/encoding/encoding.h"
#include "common/model/model_spec.h"

namespace stagecoach {

// UNIMPLEMENTED, with one sentence for users, if the model has a part or a size that only CPUs can
// compute.
absl::Status CheckRunsOnGpus(const ModelSpec& spec);

// Whether GPUs keep rows of `cols` weights in this encoding. They expand all others to one dtype.
bool GpusKeep(const Encoding& encoding, int32_t cols);

// The same for the weights of experts.
bool GpusKeepExperts(const Encoding& encoding, int32_t cols);
// Whether GPUs keep experts quantized at all: kPackedExpertsSwitch says no to compare.
bool GpusKeepAnyExperts();

}  // namespace stagecoach
