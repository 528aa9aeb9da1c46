#include "router/frontend/http/json_fields.h"

#include <boost/json.hpp>
#include <limits>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router::http {
namespace {

std::string Problem(std::string_view text) {
  const auto object = ParseObject(text);
  REQUIRE_FALSE(object.ok());
  CHECK(absl::IsInvalidArgument(object.status()));
  return std::string(object.status().message());
}

TEST_CASE("a body is one JSON object in UTF-8 with limited depth") {
  CHECK(ParseObject(" {\"a\": 1} \n").ok());
  CHECK(Problem("").starts_with("the request's body is not valid JSON: "));
  CHECK(Problem("{\"a\": }").find("at byte 6") != std::string::npos);
  CHECK(Problem("{} x").starts_with("the request's body is not valid JSON: "));
  CHECK(Problem("[1]") == "the request's body must be a JSON object, not an array");
  const auto nested = [](size_t depth) {
    return "{\"a\": " + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  CHECK(ParseObject(nested(kMaxJsonDepth - 1)).ok());
  CHECK_FALSE(ParseObject(nested(kMaxJsonDepth)).ok());
  CHECK_FALSE(ParseObject(nested(1'000'000)).ok());
  std::string many = "{\"a\": [";
  for (int i = 0; i < 7'000'000; ++i) many += "1,";
  CHECK(Problem(many + "1]}").find("too many values") != std::string::npos);
}

TEST_CASE("for invalid UTF-8, the error names field and byte") {
  CHECK(Problem("{\"a\": \"x\xFF\"}") == "a: is not valid UTF-8 at byte 1");
  CHECK(Problem("{\"a\": [1, {\"b\": [\"x\", \"é\xED\xA0\x80\"]}]}") ==
        "a[1].b[1]: is not valid UTF-8 at byte 2");
  CHECK(Problem("{\"\xFF\": 1}") == "the request's body is not valid UTF-8 at byte 2");
  CHECK(Problem("{\"a\": \"\xFF\", ") == "the request's body is not valid UTF-8 at byte 7");
}

TEST_CASE("a lone surrogate and a byte order mark have their own errors") {
  CHECK(Problem("\xEF\xBB\xBF{}").find("byte order mark") != std::string::npos);
  for (const char* text : {R"({"a": "\ud800"})", R"({"a": "\ud800x"})", R"({"a": "\udc00"})",
                           R"({"a": "\ud800\u0041"})", R"({"a": "\ud800\n"})"}) {
    CHECK(Problem(text).find("half of a surrogate pair") != std::string::npos);
  }
  CHECK(ParseObject(R"({"a": "\ud83d\ude00"})").ok());
}

TEST_CASE("a number that no float holds is refused as it was written") {
  const auto object = ParseObject(R"({"a": 1e308, "b": -1e308, "c": 3e38})");
  REQUIRE(object.ok());
  const auto problem = [&object](const char* name) {
    JsonFields fields(*object);
    CHECK_FALSE(fields.Number(name));
    return std::string(fields.status().message());
  };
  CHECK(problem("a") == "a: 1e+308 is too large");
  CHECK(problem("b") == "b: -1e+308 is too small");
  CHECK(JsonFields(*object).Number("c") == 3e38);
}

TEST_CASE("the error shows a number out of range as people write it") {
  const auto problem = [](const char* value, int64_t low, int64_t high) {
    const auto object = ParseObject(std::string(R"({"a": )") + value + "}");
    REQUIRE(object.ok());
    JsonFields fields(*object);
    CHECK_FALSE(fields.Integer("a", low, high));
    return std::string(fields.status().message());
  };
  constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
  CHECK(problem("2.5", 1, 128) == "a: 2.5 is not an integer in [1, 128]");
  CHECK(problem("2.5", 0, kMaxUint32) == "a: 2.5 is not an integer");
  CHECK(problem("-1", 0, kMaxUint32) == "a: -1 is not >= 0");
  CHECK(problem("99999999999", 0, kMaxUint32) == "a: 99999999999 is too large");
  CHECK(problem("-99999999999", kMinInt32, kMaxUint32) == "a: -99999999999 is too small");
}

TEST_CASE("fields have types, and null counts as absent") {
  const auto object = ParseObject(
      R"({"b": true, "i": 3, "d": 2.0, "s": "x", "a": [1], "o": {}, "n": null, "f": 1.5})");
  REQUIRE(object.ok());
  JsonFields fields(*object, "top.");
  CHECK(fields.Bool("b") == true);
  CHECK(fields.Integer("i", 0, 3) == 3);
  CHECK(fields.Integer("d", 0, 3) == 2);
  CHECK(fields.Number("i") == 3.0);
  CHECK(fields.Number("f") == 1.5);
  CHECK(fields.String("s") == "x");
  CHECK(fields.Array("a") != nullptr);
  CHECK(fields.Object("o") != nullptr);
  for (const char* name : {"n", "missing"}) {
    CHECK_FALSE(fields.Bool(name));
    CHECK_FALSE(fields.Integer(name, 0, 1));
    CHECK_FALSE(fields.Number(name));
    CHECK_FALSE(fields.String(name));
    CHECK(fields.Array(name) == nullptr);
    CHECK(fields.Object(name) == nullptr);
    CHECK(fields.Any(name) == nullptr);
  }
  CHECK(fields.status().ok());
  CHECK_FALSE(fields.Integer("s", 0, 1));
  CHECK(fields.status().message() == "top.s: must be an integer, not a string");
  CHECK_FALSE(fields.Bool("b"));
  fields.Refuse("other", "comes too late");
  CHECK(fields.status().message() == "top.s: must be an integer, not a string");
}

TEST_CASE("integers are whole numbers within a range") {
  const int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(ToInteger(boost::json::value(5), 5, 5) == 5);
  CHECK_FALSE(ToInteger(boost::json::value(5), 6, most));
  CHECK_FALSE(ToInteger(boost::json::value(5.5), 0, most));
  CHECK_FALSE(ToInteger(boost::json::value(1e300), 0, most));
  CHECK_FALSE(ToInteger(boost::json::value(uint64_t(most) + 1), 0, most));
  CHECK_FALSE(ToInteger(boost::json::value(true), 0, most));
}

}  // namespace
}  // namespace stagecoach::router::http
