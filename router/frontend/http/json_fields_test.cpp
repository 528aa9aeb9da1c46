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

TEST_CASE("a body is one JSON object in UTF-8, and not too deep") {
  CHECK(ParseObject(" {\"a\": 1} \n").ok());
  CHECK(Problem("").starts_with("the request's body is not valid JSON: "));
  CHECK(Problem("{\"a\": }").find("at byte 6") != std::string::npos);
  CHECK(Problem("{} x").starts_with("the request's body is not valid JSON: "));
  CHECK(Problem("{\"a\": \"\xFF\"}").starts_with("the request's body is not valid JSON: "));
  CHECK(Problem("{\"a\": \"\xED\xA0\x80\"}").starts_with("the request's body is not valid JSON: "));
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

TEST_CASE("fields have types, and null is as good as absent") {
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

TEST_CASE("integers are whole numbers in a range") {
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
