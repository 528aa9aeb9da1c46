#include "router/text/tool_call_ids.h"

#include <string>
#include <string_view>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

TEST_CASE("new ids have the family's form") {
  const auto make = [](ToolFamily family, std::string_view key) {
    return MakeToolCallId(family, key, "f", 3);
  };
  CHECK(make(ToolFamily::kMistral, "a").size() == 9);
  CHECK(make(ToolFamily::kHermes, "a").starts_with("call_"));
  CHECK(make(ToolFamily::kHermes, "a") != make(ToolFamily::kHermes, "b"));
  CHECK(make(ToolFamily::kKimi, "a") == "functions.f:3");
}

TEST_CASE("Mistral's templates get nine letters and digits") {
  ToolCallIds ids(ToolFamily::kMistralArgs);
  CHECK(ids.OfCall("a1B2c3D4e", "f") == "a1B2c3D4e");
  const std::string made = ids.OfCall("call_1", "f");
  CHECK(made.size() == 9);
  CHECK(made == ids.OfResult("call_1"));
  CHECK(made == ToolCallIds(ToolFamily::kMistral).OfResult("call_1"));
  CHECK(made != ids.OfCall("call_2", "f"));
}

TEST_CASE("other templates get ids as they are") {
  ToolCallIds ids(ToolFamily::kHermes);
  CHECK(ids.OfCall("call_1", "f") == "call_1");
  CHECK(ids.OfResult("call_1") == "call_1");
}

TEST_CASE("Kimi's templates get names and rising numbers") {
  ToolCallIds ids(ToolFamily::kKimi);
  CHECK(ids.next_number() == 0);
  CHECK(ids.OfCall("functions.f:0", "f") == "functions.f:0");
  CHECK(ids.OfCall("functions.a.b-c:1", "a.b-c") == "functions.a.b-c:1");
  CHECK(ids.OfCall("call_x", "f") == "functions.f:2");
  CHECK(ids.OfResult("call_x") == "functions.f:2");
  CHECK(ids.OfResult("functions.f:0") == "functions.f:0");
  CHECK(ids.OfResult("unknown") == "unknown");
  for (const std::string_view other : {"functions_f_3", "functions.f:03", "functions.g:4",
                                       "functions.f:", "f:5", "", "functions.f:99999999999"}) {
    const uint32_t number = ids.next_number();
    CHECK(ids.OfCall(other, "f") == "functions.f:" + std::to_string(number));
  }
  // A history without its beginning keeps its numbers.
  CHECK(ids.OfCall("functions.f:80", "f") == "functions.f:80");
  CHECK(ids.next_number() == 81);
}

TEST_CASE("Kimi: calls of several turns with the same id are told apart") {
  ToolCallIds ids(ToolFamily::kKimi);
  CHECK(ids.OfCall("functions.f:0", "f") == "functions.f:0");
  CHECK(ids.OfResult("functions.f:0") == "functions.f:0");
  CHECK(ids.OfCall("functions.f:0", "f") == "functions.f:1");
  CHECK(ids.OfResult("functions.f:0") == "functions.f:1");
}

}  // namespace
}  // namespace stagecoach::router
