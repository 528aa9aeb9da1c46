// The real SchedulerCore in virtual time. The stages are servers in series that execute steps in
// order, each for the time that StageCost gives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/testing/step_cost.h"

namespace stagecoach::router {

struct SimulatedRequest {
  double arrival_s = 0;
  int32_t n_prompt = 0;
  int32_t n_output = 0;
  bool closed_loop = false;  // arrives when another request ends, instead of at arrival_s
};

struct SimulatedStep {
  StepWork work;
  double planned_s = 0;
  double first_stage_s = 0;  // begins on the first stage
  double result_s = 0;       // result arrives at the router
  double stage_s = 0;        // compute time on the first stage
};

struct SimulatedRun {
  double seconds = 0;
  int64_t n_prompt_tokens = 0;
  int64_t n_output_tokens = 0;
  uint64_t n_preemptions = 0;
  std::vector<double> first_token_s;  // after arrival, per request
  std::vector<double> between_tokens_s;
  std::vector<double> busy_share;  // per stage
  std::vector<SimulatedStep> steps;
};

struct SimulatedStage {
  DeviceSpeed speed;
  int32_t n_layers = 0;
};

// Stages of one speed. The first ones get the remaining layers.
// REQUIRES: n_stages <= shape.n_layers.
std::vector<SimulatedStage> EvenStages(const ModelShape& shape, const DeviceSpeed& speed,
                                       int32_t n_stages);

// INTERNAL, with a description, if a StrictStage rejects a plan. The same input gives the same run.
absl::StatusOr<SimulatedRun> Simulate(const SchedulerConfig& config,
                                      const std::vector<SimulatedStage>& stages,
                                      const ModelShape& shape,
                                      std::vector<SimulatedRequest> requests);

}  // namespace stagecoach::router
