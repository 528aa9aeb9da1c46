#include "router/dispatch/answer_watch.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "common/mutex.h"
#include "common/rpc/server.h"
#include "stagecoach/v1/stage.grpc.pb.h"

namespace stagecoach::router {
namespace {

constexpr auto kPause = std::chrono::milliseconds(200);

}  // namespace

AnswerWatch::AnswerWatch(const std::vector<std::string>& addresses, const InternalAccess& access,
                         OnSilent on_silent)
    : addresses_(addresses), on_silent_(std::move(on_silent)), silent_(addresses.size()) {
  for (size_t i = 0; i < addresses_.size(); ++i) {
    threads_.emplace_back([this, i, access](const std::stop_token& stop) { Ask(i, access, stop); });
  }
}

AnswerWatch::~AnswerWatch() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
  for (size_t i = 0; i < addresses_.size(); ++i) SetSilent(i, false);
}

void AnswerWatch::Ask(size_t stage, const InternalAccess& access, const std::stop_token& stop) {
  const auto stub =
      v1::Stage::NewStub(MakeInternalChannel(addresses_[stage], access, kMaxInternalMessageBytes));
  while (!stop.stop_requested()) {
    grpc::ClientContext context;
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    context.set_deadline(std::chrono::system_clock::now() + kSilence);
    v1::DescribeResponse response;
    const grpc::Status status = stub->Describe(&context, {}, &response);
    if (stop.stop_requested()) return;
    SetSilent(stage, status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
    WaitForStop(stop, kPause);
  }
}

void AnswerWatch::SetSilent(size_t stage, bool silent) {
  const MutexLock lock(mutex_);
  if (silent_[stage] == silent) return;
  silent_[stage] = silent;
  std::vector<std::string> addresses;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    if (silent_[i]) addresses.push_back(addresses_[i]);
  }
  on_silent_(addresses);
}

}  // namespace stagecoach::router
