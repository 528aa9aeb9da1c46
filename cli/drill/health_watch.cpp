#include "cli/drill/health_watch.h"

#include <algorithm>

#include "common/status.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace stagecoach::drill {

HealthWatch::HealthWatch(const std::shared_ptr<grpc::Channel>& channel)
    : thread_([this, channel] { Follow(channel); }) {}

HealthWatch::~HealthWatch() {
  context_.TryCancel();
  thread_.join();
}

void HealthWatch::Follow(const std::shared_ptr<grpc::Channel>& channel) {
  using grpc::health::v1::HealthCheckResponse;
  const auto stub = grpc::health::v1::Health::NewStub(channel);
  const auto stream = stub->Watch(&context_, {});
  for (HealthCheckResponse response; stream->Read(&response);) {
    {
      const MutexLock lock(mutex_);
      changes_.push_back({Clock::now(), response.status() == HealthCheckResponse::SERVING});
    }
    changed_.notify_all();
  }
  stream->Finish();
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

absl::Status HealthWatch::Await(Clock::duration limit, const char* what,
                                const std::function<bool(const std::vector<Change>&)>& done) const {
  const Clock::time_point deadline = Clock::now() + limit;
  MutexLock lock(mutex_);
  while (!done(changes_)) {
    if (ended_) return absl::UnavailableError("the router has ended");
    if (Clock::now() >= deadline) return absl::DeadlineExceededError(what);
    changed_.wait_until(lock, deadline);
  }
  return absl::OkStatus();
}

absl::Status HealthWatch::AwaitServing(Clock::duration limit) const {
  return Await(limit, "the router does not serve", [](const std::vector<Change>& changes) {
    return !changes.empty() && changes.back().serving;
  });
}

absl::StatusOr<Outage> HealthWatch::AwaitOutage(Clock::time_point since,
                                                Clock::duration limit) const {
  Outage outage;
  const auto done = [&](const std::vector<Change>& changes) {
    const auto noticed = std::ranges::find_if(
        changes, [&](const Change& change) { return change.time >= since && !change.serving; });
    const auto ended =
        std::find_if(noticed, changes.end(), [](const Change& change) { return change.serving; });
    if (ended == changes.end()) return false;
    outage = {.noticed = noticed->time, .ended = ended->time};
    return true;
  };
  SC_RETURN_IF_ERROR(Await(limit, "the router did not notice it, or does not serve again", done));
  return outage;
}

}  // namespace stagecoach::drill
