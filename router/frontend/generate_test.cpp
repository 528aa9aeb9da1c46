// Tests Generate and Chat with a real server and a real scheduler over the fake pipeline.
#include <chrono>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "router/frontend/testing/front_house.h"

namespace stagecoach::router {
namespace {

struct ChoiceOutcome {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<v1::PositionLogprobs> logprobs;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  std::string stop_reason;
};

struct Outcome {
  grpc::Status status;
  std::vector<v1::GenerateResponse> messages;
  std::map<uint32_t, ChoiceOutcome> choices;
};

using Reader = grpc::ClientReader<v1::GenerateResponse>;

Outcome ReadAll(Reader& reader) {
  Outcome outcome;
  v1::GenerateResponse message;
  while (reader.Read(&message)) {
    ChoiceOutcome& choice = outcome.choices[message.index()];
    CHECK(choice.finish == v1::FINISH_REASON_UNSPECIFIED);
    choice.text += message.text();
    choice.ids.insert(choice.ids.end(), message.token_ids().begin(), message.token_ids().end());
    choice.logprobs.insert(choice.logprobs.end(), message.logprobs().begin(),
                           message.logprobs().end());
    choice.finish = message.finish_reason();
    choice.stop_reason = message.stop_reason();
    outcome.messages.push_back(message);
  }
  outcome.status = reader.Finish();
  return outcome;
}

Outcome Generate(FrontHouse& house, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  return ReadAll(*house.stub->Generate(&context, request));
}

v1::GenerateRequest Request(const std::string& text, uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_sampling()->set_seed(5);
  request.mutable_sampling()->set_ignore_eos(true);
  request.mutable_sampling()->set_max_tokens(max_tokens);
  return request;
}

std::string Decode(const std::vector<int32_t>& ids) {
  return *TestModel().tokenizer->Decode(ids, true);
}

TEST_CASE("a stream carries tokens and text, first the prompt and last the usage") {
  FrontHouse house;
  v1::GenerateRequest request = Request("Hello there", 100);
  request.set_request_id("mine");
  const Outcome outcome = Generate(house, request);
  REQUIRE(outcome.status.ok());
  const ChoiceOutcome& choice = outcome.choices.at(0);
  CHECK(choice.ids == Expected(request)[0]);
  CHECK(choice.text == Decode(choice.ids));
  CHECK(choice.finish == v1::FINISH_REASON_LENGTH);
  for (size_t i = 0; i < outcome.messages.size(); ++i) {
    const v1::GenerateResponse& message = outcome.messages[i];
    CHECK(message.request_id() == "mine");
    CHECK(message.has_prompt() == (i == 0));
    CHECK(message.has_usage() == (i + 1 == outcome.messages.size()));
    CHECK(message.has_timing() == (i + 1 == outcome.messages.size()));
  }
  const int n_prompt = outcome.messages.front().prompt().token_ids_size();
  CHECK(n_prompt == int(TestModel().tokenizer->Encode("Hello there", true)->size()));
  CHECK(outcome.messages.front().prompt().text().empty());
  const v1::GenerateResponse& last = outcome.messages.back();
  CHECK(int(last.usage().prompt_tokens()) == n_prompt);
  CHECK(last.usage().completion_tokens() == 100);
  CHECK(last.timing().ttft_ms() <= last.timing().total_ms());
  house.WaitUntilIdle();
}

TEST_CASE("echo returns the prompt's text") {
  FrontHouse house;
  v1::GenerateRequest request = Request("Hello there", 3);
  request.set_echo(true);
  const Outcome outcome = Generate(house, request);
  REQUIRE(outcome.status.ok());
  CHECK(outcome.messages.front().prompt().text() == "Hello there");
  CHECK_FALSE(outcome.messages.front().request_id().empty());
}

TEST_CASE("a stop token ends the stream: its id is sent, its text is not") {
  FrontHouse house;
  v1::GenerateRequest request = Request("Hello there", 100);
  const std::vector<int32_t> whole = Expected(request)[0];
  request.mutable_sampling()->add_stop_token_ids(whole[20]);
  const std::vector<int32_t> expected = Expected(request)[0];
  const Outcome outcome = Generate(house, request);
  REQUIRE(outcome.status.ok());
  const ChoiceOutcome& choice = outcome.choices.at(0);
  CHECK(choice.ids == expected);
  CHECK(choice.text == Decode({expected.begin(), expected.end() - 1}));
  CHECK(choice.finish == v1::FINISH_REASON_STOP);
  CHECK(choice.stop_reason == std::to_string(whole[20]));
}

TEST_CASE("a stop string ends the stream and frees the sequence's blocks") {
  FrontHouse house;
  v1::GenerateRequest request = Request("Hello there", 200);
  const std::vector<int32_t> ids = Expected(request)[0];
  const std::string whole = Decode(ids);
  const std::string stop = whole.substr(30, 4);
  request.mutable_sampling()->add_stop(stop);
  const Outcome outcome = Generate(house, request);
  REQUIRE(outcome.status.ok());
  const ChoiceOutcome& choice = outcome.choices.at(0);
  CHECK(choice.text == whole.substr(0, whole.find(stop)));
  CHECK(choice.finish == v1::FINISH_REASON_STOP);
  CHECK(choice.stop_reason == stop);
  CHECK(choice.ids.size() < ids.size());
  CHECK(outcome.messages.back().usage().completion_tokens() == choice.ids.size());
  house.WaitUntilIdle();
}

TEST_CASE("a valid grammar is used, and for an invalid one the error gives field and reason") {
  FrontHouse house;
  v1::GenerateRequest request = Request("Hello there", 3);
  request.mutable_sampling()->mutable_grammar()->set_regex("[a-z]*");
  CHECK(Generate(house, request).status.ok());
  request.mutable_sampling()->mutable_grammar()->set_json_schema(R"({"uniqueItems": true})");
  const Outcome outcome = Generate(house, request);
  CHECK(outcome.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(outcome.status.error_message().find("sampling.grammar.json_schema: ") == 0);
  CHECK(outcome.status.error_message().find("uniqueItems") != std::string::npos);
}

TEST_CASE("n choices share a stream and differ from each other") {
  FrontHouse house;
  v1::GenerateRequest request = Request("Hello there", 60);
  request.mutable_sampling()->set_n(4);
  const auto expected = Expected(request);
  const Outcome outcome = Generate(house, request);
  REQUIRE(outcome.status.ok());
  REQUIRE(outcome.choices.size() == 4);
  for (uint32_t i = 0; i < 4; ++i) {
    CHECK(outcome.choices.at(i).ids == expected[i]);
    CHECK(outcome.choices.at(i).finish == v1::FINISH_REASON_LENGTH);
  }
  CHECK(expected[0] != expected[1]);
  CHECK(outcome.messages.back().usage().completion_tokens() == 240);
  CHECK(outcome.messages.back().has_timing());
}

TEST_CASE("log-probabilities come with their tokens, the prompt's before the first text") {
  FrontHouse house;
  v1::GenerateRequest request = Request(std::string(100, 'x'), 20);
  request.mutable_sampling()->set_logprobs(2);
  request.mutable_sampling()->set_prompt_logprobs(1);
  request.mutable_sampling()->set_n(2);
  const Outcome outcome = Generate(house, request);
  REQUIRE(outcome.status.ok());
  for (const auto& [index, choice] : outcome.choices) {
    REQUIRE(choice.logprobs.size() == choice.ids.size());
    for (size_t i = 0; i < choice.ids.size(); ++i) {
      CHECK(choice.logprobs[i].chosen().token_id() == choice.ids[i]);
      CHECK(choice.logprobs[i].chosen().logprob() == -float(choice.ids[i]));
      CHECK(choice.logprobs[i].chosen().token() ==
            std::string(TestModel().tokenizer->TokenBytes(choice.ids[i])));
    }
  }
  const v1::Prompt& prompt = outcome.messages.front().prompt();
  REQUIRE(prompt.logprobs_size() == prompt.token_ids_size() - 1);
  for (int i = 0; i < prompt.logprobs_size(); ++i) {
    CHECK(prompt.logprobs(i).chosen().token_id() == prompt.token_ids(i + 1));
    CHECK(prompt.logprobs(i).chosen().logprob() == float(i + 1));
  }
}

TEST_CASE("a cancelled request frees the blocks of all its choices at once") {
  FrontHouse house({.hold_results = true});
  v1::GenerateRequest request = Request("Hello there", 200);
  request.mutable_sampling()->set_n(3);
  grpc::ClientContext context;
  const auto reader = house.stub->Generate(&context, request);
  house.WaitUntilRunning(3);
  context.TryCancel();
  CHECK(ReadAll(*reader).status.error_code() == grpc::StatusCode::CANCELLED);
  house.WaitUntilIdle();
}

TEST_CASE("a cancel in the middle of a stream frees its blocks") {
  FrontHouse house({.max_delay_us = 500});
  grpc::ClientContext context;
  const auto reader = house.stub->Generate(&context, Request("Hello there", 240));
  v1::GenerateResponse message;
  REQUIRE(reader->Read(&message));
  context.TryCancel();
  ReadAll(*reader);
  house.WaitUntilIdle();
}

TEST_CASE("a deadline ends a stream and frees its blocks") {
  FrontHouse house({.hold_results = true});
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  const auto reader = house.stub->Generate(&context, Request("Hello there", 100));
  CHECK(ReadAll(*reader).status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  house.WaitUntilIdle();
}

TEST_CASE("a full queue refuses requests and says how long to wait") {
  SchedulerConfig config = FrontHouse::Config();
  config.max_sequences = 1;
  config.max_waiting = 2;
  FrontHouse house({.hold_results = true}, config);
  grpc::ClientContext running_context;
  const auto running = house.stub->Generate(&running_context, Request("one", 5));
  house.WaitUntilRunning(1);
  grpc::ClientContext waiting_context;
  const auto waiting = house.stub->Generate(&waiting_context, Request("one more", 5));
  while (house.scheduler->Snapshot().get().waiting < 1) {
  }
  grpc::ClientContext context;
  v1::GenerateRequest request = Request("two", 5);
  request.mutable_sampling()->set_n(2);
  const auto refused = house.stub->Generate(&context, request);
  CHECK(ReadAll(*refused).status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto& trailer = context.GetServerTrailingMetadata();
  const auto retry = trailer.find("retry-after-ms");
  REQUIRE(retry != trailer.end());
  CHECK(std::stoi(std::string(retry->second.data(), retry->second.size())) > 0);
  request.mutable_sampling()->set_n(3);
  const Outcome never = Generate(house, request);
  CHECK(never.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(never.status.error_message().starts_with(
      "sampling.n: 3 choices are more than the queue holds"));
  house.pipeline.ReleaseAll();
  CHECK(ReadAll(*running).status.ok());
  CHECK(ReadAll(*waiting).status.ok());
}

TEST_CASE("a full preparation queue refuses requests and names the queue") {
  FrontHouse house({}, FrontHouse::Config(),
                   {.n_prompt_threads = 1, .n_grammar_threads = 1, .max_prompts = 1});
  Frontend& frontend = *house.frontend;
  const auto fill = [&frontend](absl::Status (Frontend::*post)(WorkQueue::Task)) {
    std::promise<void> begins, end;
    const std::future<void> begun = begins.get_future();
    CHECK((frontend.*post)([begins = std::move(begins), gate = end.get_future()]() mutable {
            begins.set_value();
            gate.wait();
          }).ok());
    begun.wait();
    CHECK((frontend.*post)([] {}).ok());
    const absl::Status refused = (frontend.*post)([] {});
    end.set_value();
    CHECK(absl::IsResourceExhausted(refused));
    return std::string(refused.message());
  };
  CHECK(fill(&Frontend::Post) == "1 requests wait to be tokenized; try again later");
  CHECK(fill(&Frontend::PostLong) ==
        "1 requests wait for their grammar to be compiled; try again later");
}

TEST_CASE("errors name the bad field, and an unknown model is not found") {
  FrontHouse house;
  v1::GenerateRequest request = Request("x", 5);
  request.mutable_sampling()->set_top_p(0);
  Outcome outcome = Generate(house, request);
  CHECK(outcome.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(outcome.status.error_message().find("sampling.top_p") != std::string::npos);
  request = Request("x", 5);
  request.set_model("other");
  outcome = Generate(house, request);
  CHECK(outcome.status.error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("when the pipeline is lost, running streams end with the reason") {
  FrontHouse house({.hold_results = true});
  grpc::ClientContext context;
  const auto reader = house.stub->Generate(&context, Request("Hello there", 100));
  house.WaitUntilRunning(1);
  house.pipeline.Lose(absl::UnavailableError("stage 1 (10.0.0.2:1) is lost"));
  const Outcome outcome = ReadAll(*reader);
  CHECK(outcome.status.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(outcome.status.error_message().find("stage 1 (10.0.0.2:1)") != std::string::npos);
}

TEST_CASE("a draining server refuses new streams and finishes running ones") {
  FrontHouse house({.hold_results = true});
  grpc::ClientContext context;
  const v1::GenerateRequest request = Request("Hello there", 30);
  const auto reader = house.stub->Generate(&context, request);
  house.WaitUntilRunning(1);
  house.frontend->StopAccepting();
  std::future<void> drained = house.scheduler->Drain();
  CHECK(Generate(house, request).status.error_code() == grpc::StatusCode::UNAVAILABLE);
  house.pipeline.ReleaseAll();
  const Outcome outcome = ReadAll(*reader);
  CHECK(outcome.status.ok());
  CHECK(outcome.choices.at(0).ids == Expected(request)[0]);
  drained.wait();
}

TEST_CASE("a server that ends cancels the remaining streams") {
  FrontHouse house({.hold_results = true});
  grpc::ClientContext context;
  const auto reader = house.stub->Generate(&context, Request("Hello there", 30));
  house.WaitUntilRunning(1);
  house.server->Shutdown(std::chrono::milliseconds(0));
  CHECK_FALSE(ReadAll(*reader).status.ok());
  house.WaitUntilIdle();
}

TEST_CASE("hundreds of open streams each get their own tokens") {
  SchedulerConfig config = FrontHouse::Config();
  config.max_waiting = 1000;
  FrontHouse house({.hold_results = true}, config);
  constexpr int kStreams = 300;
  std::vector<grpc::ClientContext> contexts(kStreams);
  std::vector<v1::GenerateRequest> requests(kStreams);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < kStreams; ++i) {
    requests[i] = Request("stream " + std::to_string(i), 20);
    readers.push_back(house.stub->Generate(&contexts[i], requests[i]));
    // A message that comes slowly while others wait for its place would be refused.
    if (i % 16 == 15) house.WaitUntilOpen(i + 1);
  }
  house.pipeline.ReleaseAll();
  for (int i = 0; i < kStreams; ++i) {
    const Outcome outcome = ReadAll(*readers[i]);
    INFO(outcome.status.error_code() << " " << outcome.status.error_message());
    REQUIRE(outcome.status.ok());
    REQUIRE(outcome.choices.at(0).ids == Expected(requests[i])[0]);
  }
  house.WaitUntilIdle();
}

TEST_CASE("clients that connect and leave under load leave nothing behind") {
  FrontHouse house({.max_delay_us = 200});
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < 15; ++i) {
        grpc::ClientContext context;
        v1::GenerateRequest request = Request("client", 40);
        request.mutable_sampling()->set_seed(t * 100 + i);
        request.mutable_sampling()->set_n(1 + i % 3);
        const auto reader = house.stub->Generate(&context, request);
        v1::GenerateResponse message;
        for (int k = 0; k < i && reader->Read(&message); ++k) {
        }
        if (i % 2 == 0) context.TryCancel();
        while (reader->Read(&message)) {
        }
        reader->Finish();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  house.WaitUntilIdle();
}

}  // namespace
}  // namespace stagecoach::router
