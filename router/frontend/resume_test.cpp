// Tests resuming streams over gRPC, with a real server and a real scheduler over the fake pipeline.
#include <chrono>
#include <string>
#include <vector>

#include "router/frontend/testing/front_house.h"

namespace stagecoach::router {
namespace {

struct Heard {
  grpc::Status status;
  std::vector<v1::GenerateResponse> messages;

  uint64_t position() const { return messages.empty() ? 0 : messages.back().position(); }
};

struct Call {
  Call(FrontHouse& house, const v1::GenerateRequest& request)
      : reader(house.stub->Generate(&context, request)) {}
  Call(FrontHouse& house, const std::string& id, uint64_t from) {
    v1::ResumeRequest request;
    request.set_request_id(id);
    request.set_from(from);
    reader = house.stub->Resume(&context, request);
  }

  // Reads at most `n_messages`, then drops the call.
  Heard Listen(size_t n_messages = SIZE_MAX) {
    Heard heard;
    v1::GenerateResponse message;
    while (heard.messages.size() < n_messages && reader->Read(&message)) {
      heard.messages.push_back(message);
    }
    if (heard.messages.size() == n_messages) context.TryCancel();
    heard.status = reader->Finish();
    return heard;
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
};

Heard Resume(FrontHouse& house, const std::string& id, uint64_t from) {
  return Call(house, id, from).Listen();
}

// Begins a stream whose first step is released; later results are held.
std::unique_ptr<Call> BeginHeld(FrontHouse& house, const v1::GenerateRequest& request) {
  auto call = std::make_unique<Call>(house, request);
  house.WaitUntilRunning(1);
  house.pipeline.Release(1);
  return call;
}

v1::GenerateRequest Request(const std::string& id, uint32_t max_tokens, uint32_t n = 1) {
  v1::GenerateRequest request;
  request.set_text("Hello there");
  request.set_request_id(id);
  request.set_resumable(true);
  request.mutable_sampling()->set_seed(5);
  request.mutable_sampling()->set_n(n);
  request.mutable_sampling()->set_ignore_eos(true);
  request.mutable_sampling()->set_max_tokens(max_tokens);
  return request;
}

TEST_CASE("a client that leaves after any message resumes where it stopped") {
  constexpr uint32_t kTokens = 9;
  for (const uint32_t n : {1u, 2u}) {
    for (size_t n_heard = 1; n_heard <= kTokens * n; n_heard += n) {
      FrontHouse house;
      const v1::GenerateRequest request = Request("mine", kTokens, n);
      Heard heard = Call(house, request).Listen(n_heard);
      const uint64_t position = heard.position();
      CHECK(position == n_heard);
      const Heard rest = Resume(house, "mine", position);
      REQUIRE(rest.status.ok());
      heard.messages.insert(heard.messages.end(), rest.messages.begin(), rest.messages.end());
      CHECK(Tokens(heard.messages, n) == Expected(request));
      CHECK(heard.messages.front().has_prompt());
      CHECK(heard.messages.back().usage().completion_tokens() == kTokens * n);
      // Earlier output can be read a second time.
      CHECK(Tokens(Resume(house, "mine", 0).messages, n) == Expected(request));
      CHECK(Resume(house, "mine", kTokens * n).messages.empty());
    }
  }
}

TEST_CASE("a resumable request runs on without readers, and every reader gets everything") {
  FrontHouse house({.hold_results = true});
  const v1::GenerateRequest request = Request("mine", 50);
  const auto first = BeginHeld(house, request);
  v1::GenerateResponse message;
  REQUIRE(first->reader->Read(&message));
  Call second(house, "mine", 0);
  REQUIRE(second.reader->Read(&message));
  CHECK(message.has_prompt());
  CHECK(Call(house, "mine", 0).Listen(1).status.error_code() == grpc::StatusCode::CANCELLED);
  house.pipeline.ReleaseAll();
  CHECK(first->Listen().position() == 50);
  CHECK(second.Listen().position() == 50);
  CHECK(Tokens(Resume(house, "mine", 0).messages, 1) == Expected(request));
  house.WaitUntilIdle();
}

TEST_CASE("each reason why a stream cannot be resumed has its own error") {
  FrontHouse house({.hold_results = true});
  CHECK(Resume(house, "mine", 0).status.error_code() == grpc::StatusCode::NOT_FOUND);
  BeginHeld(house, Request("mine", 50))->Listen(1);
  CHECK(Resume(house, "mine", 51).status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(Call(house, Request("mine", 50)).Listen().status.error_code() ==
        grpc::StatusCode::ALREADY_EXISTS);
  v1::GenerateRequest plain = Request("plain", 3);
  plain.set_resumable(false);
  house.pipeline.ReleaseAll();
  const Heard whole = Call(house, plain).Listen();
  CHECK(whole.status.ok());
  CHECK(whole.position() == 0);
  CHECK(Resume(house, "plain", 0).status.error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("a refused request frees its id") {
  FrontHouse house;
  v1::GenerateRequest request = Request("mine", 5);
  request.mutable_sampling()->set_top_p(7);
  const Heard refused = Call(house, request).Listen();
  CHECK(refused.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(refused.status.error_message().find("sampling.top_p: ") == 0);
  CHECK(Call(house, Request("mine", 5)).Listen().status.ok());
}

TEST_CASE("a cancelled stream ends its sequences and its readers") {
  FrontHouse house({.hold_results = true});
  const auto call = BeginHeld(house, Request("mine", 200));
  v1::GenerateResponse message;
  REQUIRE(call->reader->Read(&message));
  v1::CancelRequest cancel;
  cancel.set_request_id("mine");
  v1::CancelResponse done;
  grpc::ClientContext cancel_context;
  CHECK(house.stub->Cancel(&cancel_context, cancel, &done).ok());
  CHECK(call->Listen().status.error_code() == grpc::StatusCode::CANCELLED);
  grpc::ClientContext again_context;
  CHECK(house.stub->Cancel(&again_context, cancel, &done).error_code() ==
        grpc::StatusCode::NOT_FOUND);
  house.pipeline.ReleaseAll();
  house.WaitUntilIdle();
}

TEST_CASE("a stream that nobody resumes ends its sequences") {
  FrontHouse house({.hold_results = true}, FrontHouse::Config(),
                   {.streams = {.keep = std::chrono::milliseconds(1)}});
  BeginHeld(house, Request("mine", 200))->Listen(1);
  house.pipeline.ReleaseAll();
  house.WaitUntilIdle();
  while (Resume(house, "mine", 0).status.error_code() != grpc::StatusCode::NOT_FOUND) {
  }
}

TEST_CASE("a client that resumes after the pipeline was lost gets the error") {
  FrontHouse house({.hold_results = true});
  CHECK(BeginHeld(house, Request("mine", 200))->Listen(1).messages.size() == 1);
  house.pipeline.Lose(absl::UnavailableError("stage 1 is lost"));
  Heard rest;
  do {
    rest = Resume(house, "mine", 1);
  } while (rest.status.ok());
  CHECK(rest.status.error_code() == grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace stagecoach::router
