#include "router/frontend/http/responses/response_store.h"

#include <string>

#include "catch2/catch_test_macros.hpp"
#include "router/text/error_code.h"

namespace stagecoach::router::http {
namespace {

KeptResponse Conversation(const std::string& text) {
  KeptResponse kept{.conversation = {}, .json = "{}"};
  kept.conversation.add_messages()->set_content(text);
  return kept;
}

Caller Tenant(const std::string& name, uint32_t weight = 1) {
  Caller caller;
  caller.tenant = name;
  caller.weight = weight;
  return caller;
}

TEST_CASE("only a response's tenant finds it") {
  ResponseStore store({});
  store.Put(Tenant("a"), "1", Conversation("x"));
  CHECK(store.Find(Tenant("a"), "1")->messages(0).content() == "x");
  const auto missing = store.Find(Tenant("b"), "1");
  CHECK(absl::IsInvalidArgument(missing.status()));
  CHECK(ErrorCode(missing.status()) == kPreviousResponseNotFound);
  CHECK(missing.status().message().find("previous_response_id: ") == 0);
  store.Put(Tenant("a"), "1", Conversation("y"));
  CHECK(store.Find(Tenant("a"), "1")->messages(0).content() == "y");
}

TEST_CASE("only a response's tenant reads and deletes it") {
  ResponseStore store({});
  store.Put(Tenant("a"), "1", Conversation("x"));
  MemoryBudget memory(10'000), small(10);
  MemoryBudget::Lease lease(&memory), none(&small);
  CHECK(store.Get(Tenant("a"), "1", lease)->json == "{}");
  CHECK(memory.used_bytes() > 0);
  CHECK(absl::IsResourceExhausted(store.Get(Tenant("a"), "1", none).status()));
  CHECK(absl::IsNotFound(store.Get(Tenant("b"), "1", lease).status()));
  CHECK(absl::IsNotFound(store.Delete(Tenant("b"), "1")));
  CHECK(store.Delete(Tenant("a"), "1").ok());
  CHECK(absl::IsNotFound(store.Get(Tenant("a"), "1", lease).status()));
  CHECK(absl::IsNotFound(store.Delete(Tenant("a"), "1")));
}

TEST_CASE("a response that nobody uses is forgotten after a time") {
  const auto now = ResponseStore::Clock::now();
  ResponseStore store({.keep = std::chrono::seconds(10)});
  store.Put(Tenant(""), "1", Conversation("x"), now);
  store.Put(Tenant(""), "2", Conversation("x"), now);
  CHECK(store.Find(Tenant(""), "1", now + std::chrono::seconds(9)).ok());
  CHECK(store.Find(Tenant(""), "1", now + std::chrono::seconds(18)).ok());
  CHECK_FALSE(store.Find(Tenant(""), "2", now + std::chrono::seconds(18)).ok());
  CHECK_FALSE(store.Find(Tenant(""), "1", now + std::chrono::seconds(30)).ok());
}

TEST_CASE("if memory is short, the tenant with most for its weight loses what it used least") {
  ResponseStore store({.max_bytes = 10'000});
  const std::string text(1500, 'x');
  store.Put(Tenant("small"), "s", Conversation(text));
  store.Put(Tenant("heavy", 4), "h1", Conversation(text));
  for (const char* id : {"1", "2"}) store.Put(Tenant("large"), id, Conversation(text));
  CHECK(store.Find(Tenant("large"), "1").ok());  // used now, so "2" is older
  store.Put(Tenant("heavy", 4), "h2", Conversation(text));
  store.Put(Tenant("heavy", 4), "h3", Conversation(text));
  CHECK(store.Find(Tenant("small"), "s").ok());
  CHECK(store.Find(Tenant("large"), "1").ok());
  CHECK_FALSE(store.Find(Tenant("large"), "2").ok());
  for (const char* id : {"h1", "h2", "h3"}) CHECK(store.Find(Tenant("heavy"), id).ok());
  store.Put(Tenant("small"), "big", Conversation(std::string(20'000, 'x')));
  CHECK_FALSE(store.Find(Tenant("small"), "big").ok());
  CHECK(store.Find(Tenant("small"), "s").ok());
}

TEST_CASE("without time or memory, nothing is kept") {
  for (const ResponseLimits& limits :
       {ResponseLimits{.keep = {}}, ResponseLimits{.max_bytes = 0}}) {
    ResponseStore store(limits);
    CHECK_FALSE(store.keeps());
    store.Put(Tenant(""), "1", Conversation("x"));
    CHECK_FALSE(store.Find(Tenant(""), "1").ok());
  }
}

}  // namespace
}  // namespace stagecoach::router::http
