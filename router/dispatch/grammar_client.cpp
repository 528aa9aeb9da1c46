#include "router/dispatch/grammar_client.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "stagecoach/v1/stage.grpc.pb.h"

namespace stagecoach::router {
namespace {

// The router itself compiled the grammar within a few seconds.
constexpr auto kTimeout = std::chrono::seconds(30);

}  // namespace

PrepareGrammar MakeGrammarClient(const std::string& last_stage_address, const v1::Lease& lease,
                                 const InternalAccess& access) {
  std::shared_ptr<v1::Stage::Stub> stub =
      v1::Stage::NewStub(MakeInternalChannel(last_stage_address, access, kMaxInternalMessageBytes));
  return [stub, last_stage_address, lease](const v1::SlotGrammar& grammar) {
    v1::PrepareGrammarRequest request;
    *request.mutable_lease() = lease;
    *request.mutable_grammar() = grammar;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTimeout);
    v1::PrepareGrammarResponse response;
    const absl::Status status = FromGrpc(stub->PrepareGrammar(&context, request, &response));
    if (status.ok() || absl::IsInvalidArgument(status)) return status;
    return absl::UnavailableError(fmt::format("the last stage ({}) cannot prepare the grammar: {}",
                                              last_stage_address, std::string(status.message())));
  };
}

}  // namespace stagecoach::router
