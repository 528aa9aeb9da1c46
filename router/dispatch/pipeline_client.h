// The pipeline's stages over gRPC: a Step stream to each one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/flight/flight_recorder.h"
#include "router/dispatch/stage_client.h"

namespace stagecoach::router {

// Plans go to the first address, results come from the last; on the others the stream only tells
// that the stage lives. One thread writes plans and one thread a stage reads. A stage whose stream
// ends, whatever the reason, takes the pipeline down; the status is UNAVAILABLE and names stage,
// address and cause. A host that vanishes without a word is noticed by keepalive.
//
// `on_lost`, when set, hears the same status right after the events' on_down. `flight`, when set,
// gets every plan and outlives the client.
std::unique_ptr<StageClient> MakePipelineClient(
    std::vector<std::string> addresses, uint64_t epoch,
    std::function<void(const absl::Status&)> on_lost = nullptr, FlightRecorder* flight = nullptr);

}  // namespace stagecoach::router
