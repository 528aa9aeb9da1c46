#include "cli/drill/drill.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>

#include "cli/drill/requests.h"
#include "common/rpc/health.h"
#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::drill {
namespace {

constexpr int kTokens = 20;

// A router with a pipeline whose stages fail. A stream waits before its last tokens for the fault,
// except in the runs without one.
class FailingRouter final : public v1::Inference::Service {
 public:
  enum class Then : uint8_t { kGoesOn, kRepeatsAToken, kEnds, kIsOtherWithoutAFault };

  explicit FailingRouter(Then then) : then_(then) {
    health_.SetServing("", true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
  }
  ~FailingRouter() override {
    health_.Shutdown();
    server_->Shutdown();
  }

  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest*,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    const bool after_fault = ++n_streams_ > 2 * kStreams;
    for (int i = 0; i < kTokens; ++i) {
      v1::GenerateResponse piece;
      piece.add_token_ids(i);
      if (then_ == Then::kIsOtherWithoutAFault) piece.set_token_ids(0, n_streams_);
      writer->Write(piece);
      if (i != kTokens / 2 || !after_fault) continue;
      n_faults_.wait(0);
      if (then_ == Then::kRepeatsAToken) writer->Write(piece);
      if (then_ == Then::kEnds) return {grpc::StatusCode::UNAVAILABLE, "stage 0 is lost"};
    }
    return grpc::Status::OK;
  }

  // One round of one fault.
  absl::Status Drill(std::vector<Row>& rows) {
    const Hooks hooks{.inflict =
                          [this](Fault, uint32_t) {
                            health_.SetServing("", false);
                            health_.SetServing("", true);
                            ++n_faults_;
                            n_faults_.notify_all();
                          },
                      .on_row = [&rows](const Row& row) { rows.push_back(row); }};
    return RunDrill(channel_, MixedRequests(kStreams, kTokens), {.faults = {Fault::kKill}}, hooks);
  }

  static constexpr int kStreams = 4;

 private:
  const Then then_;
  std::atomic<int> n_streams_ = 0;
  std::atomic<int> n_faults_ = 0;
  HealthService health_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

Row OnlyRow(FailingRouter::Then then) {
  FailingRouter router(then);
  std::vector<Row> rows;
  const absl::Status status = router.Drill(rows);
  INFO(status);
  REQUIRE(status.ok());
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].n_streams == FailingRouter::kStreams);
  CHECK(rows[0].running_share == 1);
  CHECK(rows[0].noticed_s.size() == 1);
  CHECK(rows[0].recovered_s.size() == 1);
  return rows[0];
}

TEST_CASE("streams that go on after the fault are identical") {
  const Row row = OnlyRow(FailingRouter::Then::kGoesOn);
  CHECK(row.n_identical == FailingRouter::kStreams);
  CHECK(row.silent_s.size() == FailingRouter::kStreams);
  CHECK(row.first_error.empty());
}

TEST_CASE("a repeated token makes a stream different") {
  CHECK(OnlyRow(FailingRouter::Then::kRepeatsAToken).n_different == FailingRouter::kStreams);
}

TEST_CASE("streams that the fault ends are errors") {
  const Row row = OnlyRow(FailingRouter::Then::kEnds);
  CHECK(row.n_error == FailingRouter::kStreams);
  CHECK(row.first_error == "stage 0 is lost");
}

TEST_CASE("nothing is compared if streams differ without a fault") {
  FailingRouter router(FailingRouter::Then::kIsOtherWithoutAFault);
  std::vector<Row> rows;
  CHECK(absl::IsFailedPrecondition(router.Drill(rows)));
  CHECK(rows.empty());
}

}  // namespace
}  // namespace stagecoach::drill
