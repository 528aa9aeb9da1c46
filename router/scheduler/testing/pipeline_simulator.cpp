#include "router/scheduler/testing/pipeline_simulator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "router/scheduler/core.h"
#include "router/scheduler/testing/strict_stage.h"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

class Simulation {
 public:
  Simulation(const SchedulerConfig& config, const std::vector<SimulatedStage>& stages,
             const ModelShape& shape, std::vector<SimulatedRequest> requests)
      : first_(stages.front().speed),
        last_(stages.back().speed),
        core_(config),
        checker_(config),
        token_arrives_s_(static_cast<size_t>(config.max_sequences)) {
    for (const SimulatedStage& stage : stages) {
      costs_.emplace_back(shape, stage.speed, stage.n_layers, &stage == &stages.back());
    }
    free_s_.resize(costs_.size());
    busy_s_.resize(costs_.size());
    run_.first_token_s.resize(requests.size());
    for (const SimulatedRequest& request : requests) {
      (request.closed_loop ? closed_loop_ : open_).push_back(request);
    }
    std::stable_sort(open_.begin(), open_.end(),
                     [](const auto& a, const auto& b) { return a.arrival_s < b.arrival_s; });
  }

  absl::StatusOr<SimulatedRun> Run() {
    while (!open_.empty() || !results_.empty()) {
      if (results_.empty() ||
          (!open_.empty() && open_.front().arrival_s <= results_.front().at_s)) {
        now_s_ = open_.front().arrival_s;
        // Requests that arrive together are planned together, as with the scheduler's mailbox.
        while (!open_.empty() && open_.front().arrival_s <= now_s_) {
          Submit(open_.front());
          open_.pop_front();
        }
      } else {
        now_s_ = results_.front().at_s;
        core_.Result(results_.front().result);
        results_.pop_front();
      }
      while (const std::unique_ptr<v1::StepPlan> plan = core_.NextPlan()) Send(*plan);
      if (!checker_.errors().empty()) return absl::InternalError(checker_.errors().front());
    }
    if (!core_.empty()) return absl::InternalError("sequences were left without a step");
    run_.seconds = now_s_;
    run_.n_preemptions = core_.Snapshot().preemptions;
    for (double busy_s : busy_s_) run_.busy_share.push_back(busy_s / now_s_);
    return std::move(run_);
  }

 private:
  struct Result {
    double at_s;
    v1::StepResult result;
  };

  class Sink final : public SequenceSink {
   public:
    Sink(Simulation& simulation, size_t index)
        : simulation_(simulation), index_(index), last_s_(simulation.now_s_) {}

    void OnOutput(const SequenceOutput& output, const SequenceTimes&) override {
      if (!output.tokens.empty()) {
        const double waited_s = simulation_.now_s_ - last_s_;
        if (is_first_) {
          simulation_.run_.first_token_s[index_] = waited_s;
        } else {
          simulation_.run_.between_tokens_s.push_back(waited_s);
        }
        is_first_ = false;
        last_s_ = simulation_.now_s_;
        ++simulation_.run_.n_output_tokens;
      }
      if (output.finish != Finish::kNone) simulation_.SubmitNext();
    }
    void OnError(const absl::Status&) override {}

   private:
    Simulation& simulation_;
    const size_t index_;
    double last_s_;
    bool is_first_ = true;
  };

  void Submit(const SimulatedRequest& request) {
    auto made = MakeRequest(++n_submitted_, request.n_prompt, request.n_output);
    made->sink = std::make_shared<Sink>(*this, n_submitted_ - 1);
    run_.n_prompt_tokens += request.n_prompt;
    core_.Submit(Alone(std::move(made)), std::chrono::steady_clock::time_point());
  }

  // The next request arrives at once, but is submitted outside the result that made room for it.
  void SubmitNext() {
    if (closed_loop_.empty()) return;
    closed_loop_.front().arrival_s = now_s_;
    open_.push_front(closed_loop_.front());
    closed_loop_.pop_front();
  }

  // The times of all earlier steps are known, so those of this step can be computed now.
  void Send(const v1::StepPlan& plan) {
    v1::StepResult result = checker_.Apply(plan);
    if (plan.slots().empty()) {
      // It only tells of ends, so it takes no time. Nothing else is in flight.
      results_.push_back({now_s_, std::move(result)});
      return;
    }
    SimulatedStep step{.work = WorkOf(plan), .planned_s = now_s_};
    // A decode that was planned ahead waits at stage 0 for its token. The last prompt token need
    // not wait: no token of its slot is in flight.
    double ready_s = now_s_ + first_.router_s;
    for (const v1::SlotDelta& delta : plan.slots()) {
      if (delta.n_tokens() == 1) ready_s = std::max(ready_s, token_arrives_s_[delta.slot()]);
    }
    for (size_t s = 0; s < costs_.size(); ++s) {
      const double start_s = std::max(ready_s, free_s_[s]);
      const double seconds = costs_[s].Seconds(step.work);
      if (s == 0) {
        step.first_stage_s = start_s;
        step.stage_s = seconds;
      }
      busy_s_[s] += seconds;
      free_s_[s] = start_s + seconds;
      ready_s = free_s_[s] + costs_[s].HopSeconds(step.work);
    }
    const double token_hop_s = costs_.size() > 1 ? last_.hop_s : 0;
    for (const v1::SlotDelta& delta : plan.slots()) {
      if (delta.sample()) token_arrives_s_[delta.slot()] = free_s_.back() + token_hop_s;
    }
    step.result_s = free_s_.back() + last_.router_s;
    results_.push_back({step.result_s, std::move(result)});
    run_.steps.push_back(step);
  }

  const DeviceSpeed first_, last_;  // of the first and the last stage
  std::vector<StageCost> costs_;
  SchedulerCore core_;
  StrictStage checker_;
  std::deque<SimulatedRequest> open_;         // in order of arrival
  std::deque<SimulatedRequest> closed_loop_;  // each arrives when another request ends
  std::deque<Result> results_;
  std::vector<double> token_arrives_s_;  // arrival of the last sampled token at stage 0, per slot
  std::vector<double> free_s_, busy_s_;  // by stage
  double now_s_ = 0;
  uint64_t n_submitted_ = 0;
  SimulatedRun run_;
};

}  // namespace

std::vector<SimulatedStage> EvenStages(const ModelShape& shape, const DeviceSpeed& speed,
                                       int32_t n_stages) {
  std::vector<SimulatedStage> stages;
  for (int32_t s = 0; s < n_stages; ++s) {
    const int32_t extra = s < shape.n_layers % n_stages ? 1 : 0;
    stages.push_back({.speed = speed, .n_layers = shape.n_layers / n_stages + extra});
  }
  return stages;
}

absl::StatusOr<SimulatedRun> Simulate(const SchedulerConfig& config,
                                      const std::vector<SimulatedStage>& stages,
                                      const ModelShape& shape,
                                      std::vector<SimulatedRequest> requests) {
  return Simulation(config, stages, shape, std::move(requests)).Run();
}

}  // namespace stagecoach::router
