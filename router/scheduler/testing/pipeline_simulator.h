// The real SchedulerCore in virtual time: stages are servers in a row that carry out steps in their
// order, each for as long as StageCost says.
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
  bool closed_loop = false;  // arrives when one that was there from its start has ended
};

struct SimulatedStep {
  StepWork work;
  double planned_s = 0;
  double first_stage_s = 0;  // begins there
  double result_s = 0;       // is at the router
  double stage_s = 0;        // the first stage's time for it
};

struct SimulatedRun {
  double seconds = 0;
  int64_t n_prompt_tokens = 0;
  int64_t n_output_tokens = 0;
  uint64_t n_preemptions = 0;
  std::vector<double> first_token_s;  // after arrival, by request
  std::vector<double> between_tokens_s;
  std::vector<double> busy_share;  // by stage
  std::vector<SimulatedStep> steps;
};

// INTERNAL, with what is wrong, when a plan is not as a StrictStage wants it. The same input gives
// the same run.
absl::StatusOr<SimulatedRun> Simulate(const SchedulerConfig& config, int32_t n_stages,
                                      const ModelShape& shape, const DeviceSpeed& speed,
                                      std::vector<SimulatedRequest> requests);

}  // namespace stagecoach::router
