// The pipeline's stages over gRPC: a Step stream to each one.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/flight/flight_recorder.h"
#include "common/rpc/internal_access.h"
#include "router/dispatch/pipeline_watch.h"
#include "router/scheduler/stage_client.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// Plans go to the first address, results come from the last; on the others the stream only tells
// that the stage lives. One thread writes plans and one thread a stage reads. A stage whose stream
// ends, whatever the reason, takes the pipeline down; the status is UNAVAILABLE and names stage,
// address and cause. A host that vanishes without a word is noticed by keepalive. Another router's
// word is the cause where it took a stage: what else breaks then follows from it.
struct PipelineHooks {
  // Hears the same status right after the events' on_down.
  std::function<void(const absl::Status&)> on_lost;
  // A stage is to end: it asks for what runs to be finished and the streams to be stopped. Gets the
  // stage's name; from the client's threads.
  std::function<void(const std::string&)> on_draining;
  FlightRecorder* flight = nullptr;  // gets every plan; outlives the client
  // The model's: a stage that sends other tokens counts as lost.
  int32_t vocab_size = std::numeric_limits<int32_t>::max();
  PipelineWatch* watch = nullptr;  // begins when all stages have answered, ends with Stop; outlives
                                   // the client
  std::function<void(bool stalled)> on_stall;  // as PipelineWatchHooks::on_change
};

std::unique_ptr<StageClient> MakePipelineClient(std::vector<std::string> addresses, v1::Lease lease,
                                                PipelineHooks hooks = {},
                                                const InternalAccess& access = {});

}  // namespace stagecoach::router
