#include "cli/drill/drill.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "cli/bench/load_runner.h"
#include "cli/drill/answer.h"
#include "cli/drill/health_watch.h"
#include "common/status.h"
#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::drill {
namespace {

using bench::Clock;

// Messages that a stream has at the fault.
constexpr uint32_t kFirstMessages = 3;

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

struct Outcomes {
  std::vector<Answer> answers;
  bench::LoadResult load;
  std::optional<Clock::time_point> started;  // when every stream had its first messages
};

// Sends all requests at once; calls `on_started` when every stream has its first messages.
Outcomes RunStreams(v1::Inference::Stub& stub, std::span<const bench::Request> requests,
                    Clock::duration timeout, const std::function<void()>& on_started) {
  Outcomes outcomes{.answers = std::vector<Answer>(requests.size())};
  std::vector<uint32_t> n_messages(requests.size());
  std::atomic<size_t> n_started = 0;
  const auto on_piece = [&](size_t i, const v1::GenerateResponse& piece) {
    outcomes.answers[i].Add(piece);
    if (++n_messages[i] != kFirstMessages || ++n_started != requests.size()) return;
    outcomes.started = Clock::now();
    on_started();
  };
  outcomes.load = bench::RunLoad(stub, requests, {.timeout = timeout, .on_piece = on_piece},
                                 [](size_t, uint64_t) {});
  return outcomes;
}

absl::StatusOr<Outcomes> RunUndisturbed(v1::Inference::Stub& stub,
                                        std::span<const bench::Request> requests) {
  Outcomes outcomes = RunStreams(stub, requests, Clock::duration::zero(), [] {});
  for (const bench::RequestRecord& record : outcomes.load.records) {
    if (!record.status.ok()) {
      return absl::Status(record.status.code(), fmt::format("a stream failed without a fault: {}",
                                                            std::string(record.status.message())));
    }
  }
  return outcomes;
}

std::optional<Clock::duration> SilenceFrom(Clock::time_point fault,
                                           const bench::RequestRecord& record) {
  std::optional<Clock::duration> longest;
  Clock::time_point before = fault;
  for (const bench::Arrival& arrival : record.arrivals) {
    if (arrival.time > fault) {
      longest = std::max(longest.value_or(Clock::duration::zero()), arrival.time - before);
    }
    before = arrival.time;
  }
  return longest;
}

void Count(const Answer& answer, const Answer& expected, const absl::Status& status, Row& row) {
  if (!status.ok() && row.first_error.empty()) row.first_error = std::string(status.message());
  if (status.ok() ? answer != expected : !answer.Begins(expected)) {
    ++row.n_different;
  } else if (status.ok()) {
    ++row.n_identical;
  } else {
    ++(absl::IsDeadlineExceeded(status) ? row.n_hung : row.n_error);
  }
}

class Drill {
 public:
  Drill(const std::shared_ptr<grpc::Channel>& channel, std::span<const bench::Request> requests,
        const Plan& plan, const Hooks& hooks)
      : stub_(v1::Inference::NewStub(channel)),
        health_(channel),
        requests_(requests),
        plan_(plan),
        hooks_(hooks) {}

  absl::Status Run() {
    SC_RETURN_IF_ERROR(Prepare());
    for (const Fault fault : plan_.faults) {
      for (uint32_t stage = 0; stage < plan_.n_stages; ++stage) {
        Row row{.fault = fault, .stage = stage};
        absl::Status status;
        for (uint32_t round = 0; round < plan_.n_rounds && status.ok(); ++round) {
          status = RunRound(row);
        }
        if (row.n_streams > 0) hooks_.on_row(row);
        SC_RETURN_IF_ERROR(status);
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Prepare() {
    SC_ASSIGN_OR_RETURN(Outcomes first, RunUndisturbed(*stub_, requests_));
    SC_ASSIGN_OR_RETURN(const Outcomes second, RunUndisturbed(*stub_, requests_));
    if (first.answers != second.answers) {
      return absl::FailedPreconditionError(
          "the same streams differ without a fault, so nothing can be compared");
    }
    limit_ = plan_.patience + 10 * first.load.duration;
    expected_ = std::move(first.answers);
    return absl::OkStatus();
  }

  absl::Status RunRound(Row& row) {
    SC_RETURN_IF_ERROR(health_.AwaitServing(limit_));
    const Outcomes outcomes =
        RunStreams(*stub_, requests_, limit_, [&] { hooks_.inflict(row.fault, row.stage); });
    if (!outcomes.started) {
      return absl::FailedPreconditionError("a stream ended before the fault: give more --tokens");
    }
    const Clock::time_point fault = *outcomes.started;
    size_t n_running = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const bench::RequestRecord& record = outcomes.load.records[i];
      Count(outcomes.answers[i], expected_[i], record.status, row);
      n_running += record.done > fault ? 1 : 0;
      const auto silence = SilenceFrom(fault, record);
      if (silence) row.silent_s.push_back(Seconds(*silence));
    }
    row.n_streams += requests_.size();
    row.running_share =
        std::min(row.running_share, static_cast<double>(n_running) / requests_.size());
    const absl::StatusOr<Outage> outage = health_.AwaitOutage(fault, limit_);
    if (!outage.ok()) {
      return absl::Status(outage.status().code(),
                          fmt::format("{} stage {}: {}", FaultName(row.fault), row.stage,
                                      std::string(outage.status().message())));
    }
    row.noticed_s.push_back(Seconds(outage->noticed - fault));
    row.recovered_s.push_back(Seconds(outage->ended - fault));
    return absl::OkStatus();
  }

  const std::unique_ptr<v1::Inference::Stub> stub_;
  const HealthWatch health_;
  const std::span<const bench::Request> requests_;
  const Plan& plan_;
  const Hooks& hooks_;
  std::vector<Answer> expected_;
  Clock::duration limit_{};
};

}  // namespace

const char* FaultName(Fault fault) { return fault == Fault::kKill ? "kill" : "stop"; }

absl::Status RunDrill(const std::shared_ptr<grpc::Channel>& channel,
                      std::span<const bench::Request> requests, const Plan& plan,
                      const Hooks& hooks) {
  return Drill(channel, requests, plan, hooks).Run();
}

}  // namespace stagecoach::drill
