#include "router/dispatch/grammar_client.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "stagecoach/v1/stage.grpc.pb.h"

namespace stagecoach::router {
namespace {

// The router itself compiled the grammar within a few seconds.
constexpr auto kTimeout = std::chrono::seconds(30);

}  // namespace

PrepareGrammar PrepareOnEach(std::vector<PrepareGrammar> pipelines) {
  return [pipelines = std::move(pipelines)](const v1::SlotGrammar& grammar) {
    std::vector<std::future<absl::Status>> answers;
    for (const PrepareGrammar& prepare : pipelines) {
      answers.push_back(std::async(std::launch::async, prepare, std::cref(grammar)));
    }
    absl::Status worst;
    bool is_prepared = false;
    for (std::future<absl::Status>& answer : answers) {
      const absl::Status status = answer.get();
      is_prepared = is_prepared || status.ok();
      if (worst.ok() || absl::IsInvalidArgument(status)) worst = status;
    }
    return is_prepared && !absl::IsInvalidArgument(worst) ? absl::OkStatus() : worst;
  };
}

PrepareGrammar MakeGrammarClient(const std::string& last_stage_address, AwaitLease await_lease,
                                 const InternalAccess& access) {
  std::shared_ptr<v1::Stage::Stub> stub =
      v1::Stage::NewStub(MakeInternalChannel(last_stage_address, access, kMaxInternalMessageBytes));
  return [stub, last_stage_address,
          await_lease = std::move(await_lease)](const v1::SlotGrammar& grammar) {
    absl::StatusOr<v1::Lease> lease = await_lease(0);
    absl::Status status = lease.status();
    while (lease.ok()) {
      v1::PrepareGrammarRequest request;
      *request.mutable_lease() = *lease;
      *request.mutable_grammar() = grammar;
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kTimeout);
      v1::PrepareGrammarResponse response;
      status = FromGrpc(stub->PrepareGrammar(&context, request, &response));
      if (status.ok() || absl::IsInvalidArgument(status)) return status;
      lease = await_lease(lease->epoch());
    }
    return absl::UnavailableError(fmt::format("the last stage ({}) cannot prepare the grammar: {}",
                                              last_stage_address, std::string(status.message())));
  };
}

}  // namespace stagecoach::router
