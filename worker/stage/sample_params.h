// The numbers that kernels sample with, from those that the router sent.
#pragma once

#include "kernels/ops.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::worker {

// By name: SlotSampling has a field for each of SampleParams.
kernels::SampleParams ToSampleParams(const v1::SlotSampling& sampling);

}  // namespace stagecoach::worker
