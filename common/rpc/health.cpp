#include "common/rpc/health.h"

namespace stagecoach {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One Watch stream. Writes the newest status, one write at a time.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService* owner, std::string service)
      : owner_(owner), service_(std::move(service)) {}

  const std::string& service() const { return service_; }

  void Update(Status status) {
    MutexLock lock(mutex_);
    wanted_ = status;
    WriteIfNeeded();
  }

  void End(const grpc::Status& status) {
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      finished_ = true;
    }
    Finish(status);
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (ok) {
        WriteIfNeeded();
        return;
      }
    }
    End(grpc::Status::CANCELLED);
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    owner_->Remove(this);
    delete this;
  }

 private:
  void WriteIfNeeded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_ || wanted_ == sent_) return;
    writing_ = true;
    sent_ = wanted_;
    response_.set_status(sent_);
    StartWrite(&response_);
  }

  HealthService* const owner_;
  const std::string service_;
  Mutex mutex_;
  Status wanted_ ABSL_GUARDED_BY(mutex_) = HealthCheckResponse::UNKNOWN;
  Status sent_ ABSL_GUARDED_BY(mutex_) = HealthCheckResponse::UNKNOWN;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  HealthCheckResponse response_;
};

HealthService::HealthService() : services_{{"", HealthCheckResponse::NOT_SERVING}} {}
HealthService::~HealthService() = default;

void HealthService::SetServing(const std::string& service, bool serving) {
  const Status status = serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
  MutexLock lock(mutex_);
  if (shut_down_) return;
  services_[service] = status;
  for (Watcher* watcher : watchers_) {
    if (watcher->service() == service) watcher->Update(status);
  }
}

void HealthService::Shutdown() {
  MutexLock lock(mutex_);
  shut_down_ = true;
  for (auto& [name, status] : services_) status = HealthCheckResponse::NOT_SERVING;
  for (Watcher* watcher : watchers_) {
    watcher->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down"));
  }
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  MutexLock lock(mutex_);
  const auto found = services_.find(request->service());
  if (found == services_.end()) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND,
                                 "no service \"" + request->service() + "\" here"));
  } else {
    response->set_status(found->second);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  auto* watcher = new Watcher(this, request->service());
  MutexLock lock(mutex_);
  if (shut_down_) {
    watchers_.insert(watcher);
    watcher->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down"));
    return watcher;
  }
  watchers_.insert(watcher);
  const auto found = services_.find(request->service());
  watcher->Update(found == services_.end() ? HealthCheckResponse::SERVICE_UNKNOWN : found->second);
  return watcher;
}

void HealthService::Remove(Watcher* watcher) {
  MutexLock lock(mutex_);
  watchers_.erase(watcher);
}

}  // namespace stagecoach
