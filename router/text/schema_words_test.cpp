#include "router/text/schema_words.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

constexpr const char* kSchema = R"({
  "description": "not this",
  "default": {"not": 1},
  "enum": [{"not": 1}],
  "properties": {
    "not": {"type": "string"},
    "a/b~": {"anyOf": [{"type": ["string", "thing"]}, {"format": "x"}, {"not": {}}]}},
  "$defs": {"if": {"if": {}}}})";

TEST_CASE("an error gives the place of the keyword in the schema") {
  const auto words = [](const char* message) { return InSchemaTerms(kSchema, message); };
  CHECK(words("Unimplemented keys: [\"not\"]") ==
        "at #/properties/a~1b~0/anyOf/2: the keyword \"not\" is not supported");
  CHECK(words("Unimplemented keys: [\"if\", \"then\"]\n while processing") ==
        "at #/$defs/if: the keyword \"if\" is not supported");
  CHECK(words("Unknown format: x") ==
        "at #/properties/a~1b~0/anyOf/1: the format \"x\" is not supported");
  CHECK(words("Invalid type: thing") ==
        "at #/properties/a~1b~0/anyOf/0: the type \"thing\" does not exist");
}

TEST_CASE("an error without a known place is passed on unchanged") {
  CHECK(InSchemaTerms("{", "Unknown format: x") == "the format \"x\" is not supported");
  CHECK(InSchemaTerms("{}", "1(7): failed to compile JSON schema: schema too large") ==
        "schema too large");
  CHECK(InSchemaTerms("{}", "something else") == "something else");
}

}  // namespace
}  // namespace stagecoach::router
