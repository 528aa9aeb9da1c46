#include "cli/batch_runner.h"

#include <atomic>
#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <latch>

#include "cli/fake_server.h"

namespace stagecoach::cli {
namespace {

struct Outcome {
  std::vector<boost::json::object> results;
  size_t n_failed = 0;
  uint64_t n_tokens = 0;
};

Outcome Run(const FakeServer& server, std::vector<std::string> lines, size_t concurrency) {
  Connection connection;
  connection.server = server.address();
  const auto client = GrpcClient::Make(connection);
  REQUIRE(client.ok());
  std::vector<BatchInput> inputs;
  for (std::string& line : lines) {
    inputs.push_back({.index = inputs.size(), .text = std::move(line)});
  }
  BatchRunner runner(**client, "served", std::move(inputs), concurrency);
  Outcome outcome;
  outcome.n_failed = runner.Run(
      [&](const std::string& line) {
        outcome.results.push_back(boost::json::parse(line).as_object());
      },
      [&](size_t, uint64_t n_tokens) { outcome.n_tokens = n_tokens; });
  return outcome;
}

std::vector<std::string> Prompts(size_t n) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < n; ++i) lines.push_back(R"({"prompt": ")" + std::to_string(i) + "\"}");
  return lines;
}

grpc::Status Echo(const v1::GenerateRequest& request, FakeServer::Writer& writer) {
  writer.Write(LastPiece(request.text()));
  return grpc::Status::OK;
}

TEST_CASE("Results have the order of the input, and no more requests run at once than allowed") {
  const FakeServer server(Echo);
  const Outcome outcome = Run(server, Prompts(500), 8);
  CHECK(outcome.n_failed == 0);
  CHECK(outcome.n_tokens == 500);
  CHECK(server.most_at_once() <= 8);
  REQUIRE(outcome.results.size() == 500);
  for (size_t i = 0; i < outcome.results.size(); ++i) {
    CHECK(outcome.results[i].at("index").to_number<size_t>() == i);
    CHECK(outcome.results[i].at("text") == boost::json::string(std::to_string(i)));
  }
}

TEST_CASE("Requests run at the same time") {
  std::latch all_here(4);
  const FakeServer server([&](const v1::GenerateRequest& request, FakeServer::Writer& writer) {
    all_here.arrive_and_wait();
    return Echo(request, writer);
  });
  CHECK(Run(server, Prompts(4), 4).n_failed == 0);
}

TEST_CASE("A failed request does not affect the others") {
  const FakeServer server([](const v1::GenerateRequest& request, FakeServer::Writer& writer) {
    if (request.text() == "1") return grpc::Status(grpc::StatusCode::INTERNAL, "broken");
    return Echo(request, writer);
  });
  std::vector<std::string> lines = Prompts(3);
  lines.push_back("nonsense");
  const Outcome outcome = Run(server, lines, 2);
  CHECK(outcome.n_failed == 2);
  CHECK(outcome.results[0].at("text") == "0");
  CHECK(outcome.results[1].at("error").at("code") == "INTERNAL");
  CHECK(outcome.results[1].at("error").at("message") == "broken");
  CHECK(outcome.results[2].at("text") == "2");
  CHECK(outcome.results[3].at("error").at("code") == "INVALID_ARGUMENT");
}

TEST_CASE("The runner retries when the queue is full, but not after other errors") {
  std::atomic<int> n_calls = 0;
  const FakeServer server([&](const v1::GenerateRequest& request, FakeServer::Writer& writer) {
    if (request.text() == "1") return grpc::Status(grpc::StatusCode::UNAVAILABLE, "lost");
    if (++n_calls < 3) return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
    return Echo(request, writer);
  });
  const Outcome outcome = Run(server, Prompts(2), 2);
  CHECK(n_calls == 3);
  CHECK(outcome.n_failed == 1);
  CHECK(outcome.results[0].at("text") == "0");
  CHECK(outcome.results[1].at("error").at("code") == "UNAVAILABLE");
}

TEST_CASE("An empty file gives no results") {
  const FakeServer server(Echo);
  CHECK(Run(server, {}, 4).results.empty());
}

TEST_CASE("Each result carries the id of its line, in our format and in OpenAI's") {
  const FakeServer server(Echo);
  const Outcome outcome = Run(
      server,
      {R"({"id": 7, "prompt": "a"})", R"({"custom_id": "x", "prompt": "a", "zz": 1})",
       R"({"custom_id": "y", "method": "POST", "url": "/v1/completions", "body": {"prompt": "b"}})"},
      4);
  CHECK(outcome.n_failed == 1);
  CHECK(outcome.results[0].at("id") == 7);
  CHECK(outcome.results[0].at("stop_reason").is_null());
  CHECK(outcome.results[1].at("custom_id") == "x");
  CHECK(outcome.results[1].at("error").at("message") == "unknown field zz");
  CHECK(outcome.results[2].at("custom_id") == "y");
  CHECK(outcome.results[2].at("response").at("body").at("choices").at(0).at("text") == "b");
  CHECK(outcome.results[2].at("response").at("body").at("model") == "served");
}

}  // namespace
}  // namespace stagecoach::cli
