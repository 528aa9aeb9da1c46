// Converts the sampling parameters that the router sent to those that the kernels read.
#pragma once

#include "kernels/ops.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::worker {

// Copies by name: SlotSampling has a field for each field of SampleParams.
kernels::SampleParams ToSampleParams(const v1::SlotSampling& sampling);

}  // namespace stagecoach::worker
