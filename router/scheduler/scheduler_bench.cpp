// Measures the cost of a scheduling step with all slots in use, 10,000 waiting sequences, and a
// pipeline that answers at once. A strict stage checks every plan, outside the measured time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <vector>

#include "router/scheduler/core.h"
#include "router/scheduler/testing/strict_stage.h"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

class NullSink final : public SequenceSink {
 public:
  void OnOutput(const SequenceOutput&, const SequenceTimes&) override {}
  void OnError(const absl::Status&) override {}
};

double MicrosecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

double Percentile(std::vector<double>& values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

int Run(int n_stages, bool window) {
  SchedulerConfig config;
  config.n_microbatches = n_stages;
  config.max_sequences = 256;
  config.max_model_len = 2048;
  config.max_waiting = 20'000;
  config.kv_groups = {{.window = 0, .n_blocks = 20'000}};
  if (window) config.kv_groups.push_back({.window = 512, .n_blocks = 20'000});
  SchedulerCore core(config);
  StrictStage stage(config);
  auto sink = std::make_shared<NullSink>();
  const auto submit = std::chrono::steady_clock::now();
  for (SequenceId id = 1; id <= 10'256; ++id) {
    auto request = MakeRequest(id, 200, 800);
    request->sink = sink;
    core.Submit(Alone(std::move(request)), submit);
  }
  std::vector<double> plan_us, result_us;
  std::deque<v1::StepResult> results;
  for (int step = 0; step < 1500; ++step) {
    const bool full = core.Snapshot().running == 256;
    while (true) {
      const auto start = std::chrono::steady_clock::now();
      const auto plan = core.NextPlan();
      const double us = MicrosecondsSince(start);
      if (plan == nullptr) break;
      if (full) plan_us.push_back(us);
      results.push_back(stage.Apply(*plan));
    }
    const auto start = std::chrono::steady_clock::now();
    core.Result(results.front());
    if (full) result_us.push_back(MicrosecondsSince(start));
    results.pop_front();
  }
  if (!stage.errors().empty()) {
    std::fprintf(stderr, "error: %s\n", stage.errors().front().c_str());
    return 1;
  }
  std::printf(
      "stages %d groups %zu waiting %d: plan p50 %.1f us p99 %.1f us, result p50 %.1f us "
      "p99 %.1f us, %zu steps\n",
      n_stages, config.kv_groups.size(), core.Snapshot().waiting, Percentile(plan_us, 0.5),
      Percentile(plan_us, 0.99), Percentile(result_us, 0.5), Percentile(result_us, 0.99),
      plan_us.size());
  return 0;
}

}  // namespace
}  // namespace stagecoach::router

int main() {
  int failed = 0;
  for (int n_stages : {1, 2, 4}) {
    for (bool window : {false, true}) failed |= stagecoach::router::Run(n_stages, window);
  }
  return failed;
}
