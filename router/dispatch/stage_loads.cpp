#include "router/dispatch/stage_loads.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <utility>

#include "common/rpc/server.h"
#include "stagecoach/v1/stage.grpc.pb.h"

namespace stagecoach::router {
namespace {

constexpr auto kTimeout = std::chrono::milliseconds(100);

}  // namespace

StageLoads MakeStageLoads(const std::vector<std::string>& addresses) {
  std::vector<std::shared_ptr<v1::Stage::Stub>> stubs;
  for (const std::string& address : addresses) {
    stubs.push_back(v1::Stage::NewStub(MakeChannel(address, kMaxInternalMessageBytes)));
  }
  return [stubs = std::move(stubs)] {
    std::vector<std::optional<double>> compute_ms;
    for (const auto& stub : stubs) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kTimeout);
      v1::StatsResponse stats;
      const bool answered = stub->Stats(&context, v1::StatsRequest(), &stats).ok();
      compute_ms.push_back(answered ? std::optional(stats.compute_ms()) : std::nullopt);
    }
    return compute_ms;
  };
}

}  // namespace stagecoach::router
