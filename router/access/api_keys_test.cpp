#include "router/access/api_keys.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

using std::chrono::seconds;

std::string Refusal(std::string_view text) {
  const auto keys = ApiKeys::Parse(text, "keys");
  REQUIRE_FALSE(keys.ok());
  return std::string(keys.status().message());
}

TEST_CASE("a key is stored in plain text or as a digest, and identifies its tenant") {
  const auto keys = ApiKeys::Parse(
      "# ours\n\n  sk-one   tenant=chatbot # the web page\r\nsk-two\n"
      "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 tenant=batch",
      "keys");
  REQUIRE(keys.ok());
  CHECK(keys->Find("Bearer sk-one")->tenant == "chatbot");
  CHECK(keys->Find("Bearer sk-two")->tenant == "key:4");
  CHECK(keys->Find("Bearer test")->tenant == "batch");
  for (const char* wrong : {"", "sk-one", "Bearer ", "Bearer sk-on", "Bearer sk-one ", "Bearer #",
                            "Basic sk-one", "Bearer sha256:9f86d081"}) {
    INFO(wrong);
    CHECK(absl::IsUnauthenticated(keys->Find(wrong).status()));
  }
}

TEST_CASE("each key without a tenant is a tenant of its own") {
  const auto keys = ApiKeys::Parse("sk-one\nsk-two requests_per_minute=3\n", "keys");
  REQUIRE(keys.ok());
  CHECK(keys->Find("Bearer sk-one")->tenant != keys->Find("Bearer sk-two")->tenant);
}

TEST_CASE("a weight belongs to a tenant, a priority limit to a key") {
  const auto keys = ApiKeys::Parse(
      "a tenant=one weight=3\nb tenant=one max_priority=7\nc weight=3 "
      "max_priority=-2000000000\nd\n",
      "keys");
  REQUIRE(keys.ok());
  CHECK(keys->Find("Bearer a")->weight == 3);
  CHECK(keys->Find("Bearer a")->max_priority == -100);
  CHECK(keys->Find("Bearer b")->weight == 3);
  CHECK(keys->Find("Bearer b")->max_priority == 7);
  CHECK(keys->Find("Bearer c")->max_priority == -2000000000);
  CHECK(keys->Find("Bearer d")->weight == 1);
  for (const char* weight : {"0", "-1", "1.5", "1001", "x", ""}) {
    CHECK(Refusal(std::string("k weight=") + weight).starts_with("keys: line 1: weight"));
  }
  for (const char* priority : {"x", "3000000000", ""}) {
    CHECK(Refusal(std::string("k max_priority=") + priority).starts_with("keys: line 1: max_"));
  }
  CHECK(Refusal("a tenant=t weight=2\nb tenant=t weight=3\n") ==
        "keys: line 2: weight is 3, but line 1 gives the same tenant weight 2");
}

TEST_CASE("a priority is bounded, with a key and without") {
  const Caller nobody;
  CHECK(nobody.CheckPriority(0).ok());
  CHECK(nobody.CheckPriority(5).ok());
  CHECK(absl::IsInvalidArgument(nobody.CheckPriority(-1)));
  const auto keys = ApiKeys::Parse("k max_priority=3\n", "keys");
  CHECK(keys->Find("Bearer k")->CheckPriority(3).ok());
  CHECK(absl::IsInvalidArgument(keys->Find("Bearer k")->CheckPriority(2)));
}

TEST_CASE("every choice counts as a request") {
  const auto keys = ApiKeys::Parse("slow requests_per_minute=6\nfast\n", "keys");
  const auto slow = keys->TakeRequest("Bearer slow", ApiKeys::Clock::now());
  CHECK(slow->TakeChoices(4).ok());
  CHECK(absl::IsResourceExhausted(slow->TakeChoices(4)));
  CHECK(slow->TakeChoices(3).ok());
  CHECK(slow->TakeChoices(1).ok());
  CHECK(
      absl::IsResourceExhausted(keys->TakeRequest("Bearer slow", ApiKeys::Clock::now()).status()));
  CHECK(absl::IsInvalidArgument(slow->TakeChoices(100)));
  CHECK(keys->Find("Bearer fast")->TakeChoices(100).ok());
}

TEST_CASE("for an invalid key file, the error names the line and does not show the key") {
  CHECK(Refusal("") ==
        "keys: contains no key, so every request would be refused: add a key, or start without "
        "--api-keys");
  CHECK(Refusal("# none\n") ==
        "keys: contains no key, so every request would be refused: add a key, or start without "
        "--api-keys");
  CHECK(Refusal("secret\nsecret limit=3\n").starts_with("keys: line 2: "));
  CHECK(Refusal("secret limit=3\n").find("secret") == std::string::npos);
  for (const char* tenant : {"", "key:1", "a\x01", "\xc3\xa9"}) {
    INFO(tenant);
    CHECK(Refusal(std::string("secret tenant=") + tenant).starts_with("keys: line 1: tenant"));
  }
  CHECK(Refusal("a\nb\na tenant=x\n") == "keys: line 3: the same key as on line 1");
  CHECK(Refusal("sha256:abc\n").starts_with("keys: line 1: "));
  for (const char* rate : {"0", "-1", "x", "1x", "inf", "nan", ""}) {
    INFO(rate);
    CHECK(Refusal(std::string("k requests_per_minute=") + rate).starts_with("keys: line 1: "));
  }
  CHECK_FALSE(ApiKeys::Read("/no/such/file").ok());
}

TEST_CASE("a key's rate allows one minute's requests at once and refills over time") {
  auto keys = ApiKeys::Parse("slow requests_per_minute=3\nfast\n", "keys");
  REQUIRE(keys.ok());
  const ApiKeys::Clock::time_point start{seconds(1000)};
  for (int i = 0; i < 3; ++i) CHECK(keys->TakeRequest("Bearer slow", start).ok());
  const auto refused = keys->TakeRequest("Bearer slow", start);
  CHECK(absl::IsResourceExhausted(refused.status()));
  CHECK(std::string(refused.status().message()).find("20 s") != std::string::npos);
  CHECK_FALSE(keys->TakeRequest("Bearer slow", start + seconds(19)).ok());
  CHECK(keys->TakeRequest("Bearer slow", start + seconds(21)).ok());
  CHECK_FALSE(keys->TakeRequest("Bearer slow", start + seconds(21)).ok());
  for (int i = 0; i < 100; ++i) CHECK(keys->TakeRequest("Bearer fast", start).ok());
  CHECK(absl::IsUnauthenticated(keys->TakeRequest("Bearer none", start).status()));
  const auto later = start + seconds(100'000);
  for (int i = 0; i < 3; ++i) CHECK(keys->TakeRequest("Bearer slow", later).ok());
  CHECK_FALSE(keys->TakeRequest("Bearer slow", later).ok());
}

}  // namespace
}  // namespace stagecoach::router
