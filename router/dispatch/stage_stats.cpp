#include "router/dispatch/stage_stats.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/mutex.h"
#include "common/rpc/server.h"
#include "stagecoach/v1/stage.grpc.pb.h"

namespace stagecoach::router {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::milliseconds(100);
// A stage that was stopped for a while answers late.
constexpr auto kCallTimeout = std::chrono::seconds(10);

// Asks all stages. A slow call keeps running; its answer serves the next caller.
class Asker {
 public:
  Asker(const std::vector<std::string>& addresses, std::chrono::milliseconds most_age,
        const InternalAccess& access)
      : most_age_(most_age), stages_(addresses.size()) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      stages_[i].stub =
          v1::Stage::NewStub(MakeInternalChannel(addresses[i], access, kMaxInternalMessageBytes));
    }
  }

  ~Asker() {
    MutexLock lock(mutex_);
    for (Stage& stage : stages_) {
      if (stage.context != nullptr) stage.context->TryCancel();
    }
    answered_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return AllAnswered(); });
  }

  std::vector<std::optional<v1::StatsResponse>> Ask() {
    MutexLock lock(mutex_);
    for (Stage& stage : stages_) {
      if (stage.context == nullptr) Begin(&stage);
    }
    answered_.wait_for(lock, kPatience,
                       [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return AllAnswered(); });
    std::vector<std::optional<v1::StatsResponse>> stats;
    for (Stage& stage : stages_) {
      const bool fresh = stage.last && Clock::now() - stage.last_time < most_age_;
      // From a stage that is always slow, there is only the answer to the previous call.
      const bool is_news = std::exchange(stage.has_news, false);
      stats.push_back(fresh || is_news ? stage.last : std::nullopt);
    }
    return stats;
  }

 private:
  struct Stage {
    std::unique_ptr<v1::Stage::Stub> stub;
    std::unique_ptr<grpc::ClientContext> context;  // of the running call; null: none
    v1::StatsResponse response;                    // of the running call, until it ends
    std::optional<v1::StatsResponse> last;
    Clock::time_point last_time;
    bool has_news = false;  // `last` was not returned yet
  };

  bool AllAnswered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::all_of(stages_.begin(), stages_.end(),
                       [](const Stage& stage) { return stage.context == nullptr; });
  }

  void Begin(Stage* stage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    stage->context = std::make_unique<grpc::ClientContext>();
    stage->context->set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    stage->stub->async()->Stats(stage->context.get(), &request_, &stage->response,
                                [this, stage](const grpc::Status& status) {
                                  MutexLock lock(mutex_);
                                  stage->has_news = status.ok();
                                  if (status.ok()) {
                                    stage->last = std::move(stage->response);
                                    stage->last_time = Clock::now();
                                  }
                                  stage->context.reset();
                                  answered_.notify_all();
                                });
  }

  const v1::StatsRequest request_;
  const std::chrono::milliseconds most_age_;
  Mutex mutex_;
  CondVar answered_;
  std::vector<Stage> stages_ ABSL_GUARDED_BY(mutex_);  // never moves
};

}  // namespace

StageStats MakeStageStats(const std::vector<std::string>& addresses,
                          std::chrono::milliseconds most_age, const InternalAccess& access) {
  return [asker = std::make_shared<Asker>(addresses, most_age, access)] { return asker->Ask(); };
}

StageLoads MakeStageLoads(StageStats stats) {
  return [stats = std::move(stats)] {
    std::vector<std::optional<double>> compute_ms;
    for (const auto& stage : stats()) {
      compute_ms.push_back(stage ? std::optional(stage->compute_ms()) : std::nullopt);
    }
    return compute_ms;
  };
}

}  // namespace stagecoach::router
