// Chooses the layers of each stage when a pipeline is set up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/flags/pipeline_flags.h"
#include "common/model/model_spec.h"
#include "router/sizing/layer_partition.h"
#include "router/sizing/measured_split.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// One answer per stage, in the order of the stages.
using Descriptions = std::span<const v1::DescribeResponse>;

// The layers that all workers hold for the router `holder`, if they make up the model: its
// successor splits in the same way, so that nothing is loaded again.
std::optional<std::vector<LayerRange>> HeldLayers(const ModelSpec& spec, Descriptions workers,
                                                  const std::string& holder);

// Whether the stages' speed and memory are to be measured before layers are split.
bool MustMeasure(MeasureStages flag, Descriptions workers);

// The load of one layer with random weights, like a stage in the middle, that measures a device.
// `load`: the request of a real load.
v1::LoadRequest MeasuringLoad(const ModelSpec& spec, v1::LoadRequest load);
// What `report`, the answer to it, says.
LayerOnDevice Measured(const v1::MemoryReport& report, const v1::DescribeResponse& worker,
                       const v1::LoadRequest& load);

// The measured split, if it promises clearly more than `even`; logs what it found. `even`: a split
// that takes the stages for equal.
std::vector<LayerRange> ChooseMeasured(const ModelSpec& spec,
                                       std::span<const LayerOnDevice> devices,
                                       const v1::LoadConfig& config, std::vector<LayerRange> even);

}  // namespace stagecoach::router
