// Follows what a router's health service says, as a load balancer does.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"

namespace stagecoach::drill {

// The router did not serve from `noticed` to `ended`.
struct Outage {
  std::chrono::steady_clock::time_point noticed, ended;
};

// Thread-safe.
class HealthWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit HealthWatch(const std::shared_ptr<grpc::Channel>& channel);
  ~HealthWatch();
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

  // Waits until the router serves. Errors as below.
  absl::Status AwaitServing(Clock::duration limit) const;
  // Waits for the end of the first outage that began after `since`. UNAVAILABLE: the router has
  // ended. DEADLINE_EXCEEDED: there is none within `limit`, or it does not end.
  absl::StatusOr<Outage> AwaitOutage(Clock::time_point since, Clock::duration limit) const;

 private:
  struct Change {
    Clock::time_point time;
    bool serving;
  };

  void Follow(const std::shared_ptr<grpc::Channel>& channel);
  // Waits until `done` is true of the changes so far. `what`: the error's text after `limit`.
  absl::Status Await(Clock::duration limit, const char* what,
                     const std::function<bool(const std::vector<Change>&)>& done) const;

  grpc::ClientContext context_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<Change> changes_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: uses all above
};

}  // namespace stagecoach::drill
