#include "common/json_text.h"

#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach {
namespace {

namespace json = boost::json;

TEST_CASE("JSON numbers are written as people write them") {
  CHECK(JsonText(2.5) == "2.5");
  CHECK(JsonText(2.0) == "2.0");
  CHECK(JsonText(-0.25) == "-0.25");
  CHECK(JsonText(1e300) == "1e+300");
  CHECK(JsonText(0.1) == "0.1");
  CHECK(JsonText(7) == "7");
  CHECK(JsonText(std::numeric_limits<uint64_t>::max()) == "18446744073709551615");
  CHECK(JsonText(std::numeric_limits<double>::infinity()) == "null");
}

TEST_CASE("the JSON library reads written text back as the same value") {
  for (const char* text :
       {R"({"a":[1.5,2.0,-3,null,true,"x\n\"é\u0001\u007f\\"],"b":{},"c":[],"d\"":{"e":[[],{}]}})",
        R"("")", "[]", "{}", "[[]]", "[\",\"]", R"({"a":","})", "5e-324", "123456789.123"}) {
    const json::value value = json::parse(text);
    CHECK(json::parse(JsonText(value)) == value);
  }
  CHECK(JsonText(json::parse(R"({"a": [1, {"b": 2.5}], "c": []})")) ==
        R"({"a":[1,{"b":2.5}],"c":[]})");
}

}  // namespace
}  // namespace stagecoach
