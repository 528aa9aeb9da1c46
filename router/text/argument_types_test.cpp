#include "router/text/argument_types.h"

#include <string>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

TEST_CASE("a schema says which types an argument may have") {
  const ArgumentTypes types(R"({"properties": {
      "text": {"type": "string"}, "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
      "list": {"type": ["array", "string"]}, "one": {"enum": ["a", "b"]}, "fixed": {"const": 3},
      "named": {"$ref": "#/$defs/named"}, "circle": {"$ref": "#/$defs/circle"}, "free": {},
      "all": {"allOf": [{"$ref": "#/$defs/named"}], "default": {}}},
      "additionalProperties": {"type": "boolean"},
      "$defs": {"named": {"type": "object"},
                "circle": {"anyOf": [{"$ref": "#/$defs/circle"}, {"$ref": "#/$defs/circle"}]}}})");
  CHECK(types.Of("text") == kJsonString);
  CHECK(types.Of("maybe") == (kJsonNumber | kJsonNull));
  CHECK(types.Of("list") == (kJsonArray | kJsonString));
  CHECK(types.Of("one") == kJsonString);
  CHECK(types.Of("fixed") == kJsonNumber);
  CHECK(types.Of("named") == kJsonObject);
  CHECK(types.Of("all") == kJsonObject);
  CHECK(types.Of("circle") == kJsonAny);
  CHECK(types.Of("free") == kJsonAny);
  CHECK(types.Of("other") == kJsonBool);
  CHECK(ArgumentTypes("").Of("a") == kJsonAny);
  CHECK(ArgumentTypes("[1").Of("a") == kJsonAny);
}

TEST_CASE("a value's text becomes JSON of the types that the schema allows") {
  CHECK(ArgumentJson("5", kJsonString) == "\"5\"");
  CHECK(ArgumentJson("5", kJsonNumber) == "5");
  CHECK(ArgumentJson(" 5.50\n", kJsonAny) == "5.50");
  CHECK(ArgumentJson("five", kJsonNumber) == "\"five\"");
  CHECK(ArgumentJson("True", kJsonBool) == "true");
  CHECK(ArgumentJson("True", kJsonString) == "\"True\"");
  CHECK(ArgumentJson("None", kJsonString | kJsonNull) == "null");
  CHECK(ArgumentJson("[1, \"a\"]", kJsonArray) == "[1, \"a\"]");
  CHECK(ArgumentJson("[1, \"a\"]", kJsonString | kJsonNumber) == R"("[1, \"a\"]")");
  CHECK(ArgumentJson("\"a\"", kJsonAny) == R"("\"a\"")");
  CHECK(ArgumentJson("{", kJsonObject) == "\"{\"");
  CHECK(ArgumentJson("['a', None]", kJsonArray) == R"(["a", null])");
  CHECK(ArgumentJson("{'a': True}", kJsonObject) == R"({"a": true})");
  CHECK(ArgumentJson("['a']", kJsonArray | kJsonString) == R"("['a']")");
  CHECK(ArgumentJson("['a']", kJsonObject) == R"("['a']")");
  CHECK(ArgumentJson("['a'], w=['b']", kJsonArray) == R"("['a'], w=['b']")");
  CHECK(ArgumentJson("['a']) ('b'", kJsonArray) == R"("['a']) ('b'")");
  CHECK(EscapedJson("a\"\\\n\x01ä/") == "a\\\"\\\\\\n\\u0001ä/");
}

}  // namespace
}  // namespace stagecoach::router
