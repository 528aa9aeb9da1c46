#include "cli/bench/load_runner.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <latch>
#include <memory>
#include <string>

namespace stagecoach::bench {
namespace {

// Answers a prompt of k tokens with k messages of one token each; refuses an empty prompt.
class CountingServer final : public v1::Inference::Service {
 public:
  // Prompt length for which the answer ends only when the client cancels.
  static constexpr int kEndless = 1000;

  CountingServer() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    stub_ = v1::Inference::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                       grpc::InsecureChannelCredentials()));
  }
  ~CountingServer() override { server_->Shutdown(); }

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    const int n_now = ++n_running_;
    for (int most = most_; n_now > most && !most_.compare_exchange_weak(most, n_now);) {
    }
    const int n = request->tokens().ids_size();
    for (int i = 0; i < n || (n == kEndless && !context->IsCancelled()); ++i) {
      v1::GenerateResponse piece;
      piece.add_token_ids(i);
      if (i + 1 == n) piece.mutable_usage()->set_prompt_tokens(static_cast<uint32_t>(n));
      writer->Write(piece);
    }
    --n_running_;
    if (n == 0) return {grpc::StatusCode::INVALID_ARGUMENT, "empty"};
    return grpc::Status::OK;
  }

  v1::Inference::Stub& stub() { return *stub_; }
  int most_at_once() const { return most_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::atomic<int> n_running_ = 0;
  std::atomic<int> most_ = 0;
};

std::vector<Request> Prompts(std::initializer_list<int> lengths) {
  std::vector<Request> requests;
  for (const int n : lengths) {
    v1::GenerateRequest request;
    request.mutable_tokens();
    for (int i = 0; i < n; ++i) request.mutable_tokens()->add_ids(1);
    requests.emplace_back(std::move(request));
  }
  return requests;
}

void NoProgress(size_t, uint64_t) {}

TEST_CASE("there is one record per request, in order") {
  CountingServer server;
  const LoadResult result =
      RunLoad(server.stub(), Prompts({3, 0, 5, 1}), {.concurrency = 2}, NoProgress);
  REQUIRE(result.records.size() == 4);
  const size_t n_arrivals[] = {3, 0, 5, 1};
  for (size_t i = 0; i < 4; ++i) {
    const RequestRecord& record = result.records[i];
    CHECK(record.status.ok() == (i != 1));
    CHECK(record.arrivals.size() == n_arrivals[i]);
    CHECK(record.prompt_tokens == n_arrivals[i]);
    CHECK(record.done >= record.sent);
    Clock::time_point before = record.sent;
    for (const Arrival& arrival : record.arrivals) {
      CHECK(arrival.time >= before);
      before = arrival.time;
    }
  }
  CHECK(server.most_at_once() <= 2);
  CHECK(result.duration.count() > 0);
}

TEST_CASE("every message of a request is reported with the request's index") {
  CountingServer server;
  std::vector<std::vector<int32_t>> tokens(3);
  const auto on_piece = [&](size_t request, const v1::GenerateResponse& piece) {
    tokens[request].insert(tokens[request].end(), piece.token_ids().begin(),
                           piece.token_ids().end());
  };
  RunLoad(server.stub(), Prompts({3, 0, 1}), {.on_piece = on_piece}, NoProgress);
  CHECK(tokens == std::vector<std::vector<int32_t>>{{0, 1, 2}, {}, {0}});
}

TEST_CASE("a request that exceeds the timeout ends with an error") {
  CountingServer server;
  const LoadResult result = RunLoad(server.stub(), Prompts({CountingServer::kEndless}),
                                    {.timeout = std::chrono::milliseconds(50)}, NoProgress);
  REQUIRE(result.records.size() == 1);
  CHECK(absl::IsDeadlineExceeded(result.records[0].status));
}

TEST_CASE("the rate sets the time between requests") {
  CountingServer server;
  const std::vector<Request> requests(20, Prompts({1}).front());
  const LoadResult result =
      RunLoad(server.stub(), requests, {.request_rate = 2000, .seed = 5}, NoProgress);
  REQUIRE(result.records.size() == 20);
  bool ascending = true;
  for (size_t i = 1; i < 20; ++i) {
    ascending = ascending && result.records[i].sent >= result.records[i - 1].sent;
  }
  CHECK(ascending);
}

TEST_CASE("a load without requests ends at once") {
  CountingServer server;
  CHECK(RunLoad(server.stub(), {}, {}, NoProgress).records.empty());
}

TEST_CASE("a stopped load sends nothing more, cancels running requests and keeps finished ones") {
  CountingServer server;
  const std::vector<Request> requests = Prompts({2, 2, CountingServer::kEndless, 2, 2});
  size_t n_done = 0;
  const LoadResult result =
      RunLoad(server.stub(), requests, {.concurrency = 1, .stopped = [&] { return n_done == 2; }},
              [&](size_t done, uint64_t) { n_done = done; });
  REQUIRE(result.records.size() == 2);
  for (const RequestRecord& record : result.records) CHECK(record.status.ok());
}

}  // namespace
}  // namespace stagecoach::bench
