// Tests the order in which parts of the server are released at a request's end.
#include "router/frontend/http/http_api.h"

#include <prometheus/text_serializer.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "router/frontend/testing/front_house.h"

namespace stagecoach::router::http {
namespace {

constexpr size_t kBudgetBytes = 100;

// Reports in its destructor, after which the server may be destroyed, whether all of the budget was
// returned.
class LastExchange final : public Exchange {
 public:
  LastExchange(MemoryBudget* budget, std::promise<bool> all_given_back)
      : budget_(budget), all_given_back_(std::move(all_given_back)) {}
  ~LastExchange() override {
    const bool all = MemoryBudget::Lease(budget_).GrowTo(kBudgetBytes);
    all_given_back_.set_value(all);  // the budget may be destroyed now
  }
  void AddFields(HeaderFields) override {}
  void Respond(HttpResponse) override {}
  void StartStream(HttpResponse, bool) override {}
  bool Write(std::string, Done) override { return true; }
  void EndStream(std::string) override {}
  void FailStream(HttpResponse, std::string) override {}
  void OnGone(absl::AnyInvocable<void() &&>) override {}
  bool is_gone() const override { return false; }

 private:
  MemoryBudget* const budget_;
  std::promise<bool> all_given_back_;
};

// Its client is gone. Reports in its destructor how many calls it received.
class LostExchange final : public Exchange {
 public:
  explicit LostExchange(std::promise<int> n_told) : n_told_promise_(std::move(n_told)) {}
  ~LostExchange() override { n_told_promise_.set_value(n_told_); }
  void AddFields(HeaderFields) override {}
  void Respond(HttpResponse) override { ++n_told_; }
  void StartStream(HttpResponse, bool) override { ++n_told_; }
  bool Write(std::string, Done) override { return true; }
  void EndStream(std::string) override { ++n_told_; }
  void FailStream(HttpResponse, std::string) override { ++n_told_; }
  void OnGone(absl::AnyInvocable<void() &&> action) override { std::move(action)(); }
  bool is_gone() const override { return true; }

 private:
  std::atomic<int> n_told_{0};
  std::promise<int> n_told_promise_;
};

TEST_CASE("a request whose client has left is not processed, unless its stream is resumable") {
  FrontHouse house;
  HttpApi api(house.frontend.get(), house.access, {}, {}, nullptr);
  const auto n_told = [&](const char* path, const char* body) {
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = body;
    std::promise<int> promise;
    std::future<int> future = promise.get_future();
    Admission admission = api.Admit(request);
    api.Handle(std::move(request), std::move(admission),
               std::make_shared<LostExchange>(std::move(promise)));
    return future.get();
  };
  CHECK(n_told("/tokenize", R"({"prompt": "x"})") == 0);
  CHECK(n_told("/v1/completions", R"({"prompt": "x", "max_tokens": 2})") == 0);
  CHECK(n_told("/v1/responses", R"({"input": "x", "max_output_tokens": 2})") == 0);
  CHECK(n_told("/v1/messages", R"({"messages": [{"role": "user", "content": "x"}]})") == 0);
  n_told("/v1/completions", R"({"prompt": "x", "max_tokens": 2, "request_id": "kept",
                                "stream": true, "stream_options": {"resumable": true}})");
  CHECK(
      house.frontend->streams().Read(StreamOwner(StreamProtocol::kHttp, Caller{}), "kept", 0).ok());
}

// Collects the answer.
class WholeExchange final : public Exchange {
 public:
  explicit WholeExchange(std::promise<std::string> body) : body_(std::move(body)) {}
  void AddFields(HeaderFields) override {}
  void Respond(HttpResponse response) override { body_.set_value(std::move(response.body)); }
  void StartStream(HttpResponse, bool) override {}
  bool Write(std::string, Done) override { return true; }
  void EndStream(std::string) override {}
  void FailStream(HttpResponse response, std::string) override { Respond(std::move(response)); }
  void OnGone(absl::AnyInvocable<void() &&>) override {}
  bool is_gone() const override { return false; }

 private:
  std::promise<std::string> body_;
};

TEST_CASE("latencies count from the request's arrival, and metrics show its wait for a thread") {
  FrontHouse house({}, FrontHouse::Config(), {.n_prompt_threads = 1});
  HttpApi api(house.frontend.get(), house.access, {}, {}, nullptr);
  const auto page = [&] {
    return prometheus::TextSerializer().Serialize(
        house.frontend->metrics().collectable()->Collect());
  };
  std::promise<void> begun, go_on;
  const auto hold = [&] {
    begun.set_value();
    go_on.get_future().wait();
  };
  REQUIRE(house.frontend->Post(hold).ok());
  begun.get_future().wait();
  HttpRequest request;
  request.arrived -= std::chrono::hours(1);
  request.method = "POST";
  request.path = "/v1/completions";
  request.body = R"({"prompt": "x", "max_tokens": 2})";
  std::promise<std::string> promise;
  std::future<std::string> body = promise.get_future();
  Admission admission = api.Admit(request);
  api.Handle(std::move(request), std::move(admission),
             std::make_shared<WholeExchange>(std::move(promise)));
  CHECK(page().find("queue=\"prompts\"} 1\n") != std::string::npos);
  go_on.set_value();
  CHECK(body.get().find("\"choices\"") != std::string::npos);
  CHECK(page().find("queue=\"prompts\"} 0\n") != std::string::npos);
  const std::string name =
      "vllm:time_to_first_token_seconds_sum{engine=\"0\",model_name=\"test-model\"} ";
  const std::string shown = page();
  const size_t at = shown.find(name);
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(shown.substr(at + name.size())) >= 3600);
}

TEST_CASE("a request's body memory is freed before its exchange ends") {
  FrontHouse house;
  HttpApi api(house.frontend.get(), house.access, {}, {}, nullptr);
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/messages",
                           "/v1/messages/count_tokens", "/v1/responses", "/tokenize"}) {
    CAPTURE(path);
    MemoryBudget budget(kBudgetBytes);
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = "{}";
    request.body_lease = MemoryBudget::Lease(&budget);
    REQUIRE(request.body_lease.GrowTo(1));
    std::promise<bool> all_given_back;
    std::future<bool> given_back = all_given_back.get_future();
    Admission admission = api.Admit(request);
    api.Handle(std::move(request), std::move(admission),
               std::make_shared<LastExchange>(&budget, std::move(all_given_back)));
    CHECK(given_back.get());
  }
}

}  // namespace
}  // namespace stagecoach::router::http
