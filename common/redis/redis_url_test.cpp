#include "common/redis/redis_url.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach {
namespace {

TEST_CASE("a URL's parts") {
  auto url = ParseRedisUrl("rediss://us%40er:p%3Ass@[::1]:7000/3?name=chat");
  REQUIRE(url.ok());
  CHECK(url->tls);
  CHECK(url->user == "us@er");
  CHECK(url->password == "p:ss");
  CHECK(url->host == "::1");
  CHECK(url->port == "7000");
  CHECK(url->database == 3);
  CHECK(url->query == "name=chat");
  CHECK(url->Redacted() == "rediss://[::1]:7000/3");

  url = ParseRedisUrl("redis://:secret@cache.example");
  REQUIRE(url.ok());
  CHECK_FALSE(url->tls);
  CHECK(url->user.empty());
  CHECK(url->password == "secret");
  CHECK(url->Redacted() == "redis://cache.example:6379/0");
}

TEST_CASE("what is no URL of a Redis") {
  for (const char* text : {"http://host", "redis://", "redis://host:0", "redis://host:x",
                           "redis://host:70000", "redis://host/chat", "redis://user:p@/1"}) {
    CAPTURE(text);
    CHECK(ParseRedisUrl(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(IsRedisUrl("/var/lib/redis"));
}

}  // namespace
}  // namespace stagecoach
