// Connects to the pipeline's stages over gRPC, with one Step stream per stage.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/flight/flight_recorder.h"
#include "common/rpc/internal_access.h"
#include "router/dispatch/pipeline_watch.h"
#include "router/scheduler/stage_client.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// Callbacks and observers of a pipeline client.
struct PipelineHooks {
  // A stage's worker must shut down, and goes on until the streams end. The argument is what to
  // give to Fail if its place is to be handed over. Runs on the client's threads.
  std::function<void(const absl::Status&)> on_draining;
  FlightRecorder* flight = nullptr;  // records every plan; outlives the client
  // Time of the loss that this client's epoch repairs, for the flight recorder; absent: none.
  std::optional<FlightRecorder::Clock::time_point> lost_at;
  // The model's vocabulary size. A stage that sends other token ids counts as lost.
  int32_t vocab_size = std::numeric_limits<int32_t>::max();
  // Begins when all stages have answered; ends with Stop. Outlives the client.
  PipelineWatch* watch = nullptr;
  // See PipelineWatchHooks::on_change.
  std::function<void(const std::vector<std::string>& stalled)> on_stall;
};

// Plans go to the first address; results come from the last. Fetches go to all, and all answer. The
// other streams otherwise only show that their stage is alive. One thread writes, plans before
// fetches; one thread per stage reads. If any stream ends, for any
// reason, the pipeline goes down; the status is UNAVAILABLE and names stage, address and cause.
// Keepalive detects a host that vanishes silently. If another router took a stage, that is the
// reported cause, since other failures follow from it. The status has a StageLoss.
std::unique_ptr<StageClient> MakePipelineClient(std::vector<std::string> addresses, v1::Lease lease,
                                                PipelineHooks hooks = {},
                                                const InternalAccess& access = {});

}  // namespace stagecoach::router
