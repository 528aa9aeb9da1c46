#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <optional>
#include <string>

#include "common/sampling_numbers.h"
#include "router/frontend/http/assets.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

TEST_CASE("openapi.json has the same ranges for sampling numbers as the checks") {
  const json::value document = json::parse(kOpenApiJson);
  const json::object& properties =
      document.at_pointer("/components/schemas/Common/properties").as_object();
  for (const SamplingNumber& number : kSamplingNumbers) {
    INFO(number.name);
    REQUIRE(properties.contains(number.name));
    const json::object& property = properties.at(number.name).as_object();
    const auto bound = [&property](const char* name) -> std::optional<double> {
      if (!property.contains(name)) return std::nullopt;
      return property.at(name).to_number<double>();
    };
    CHECK(property.at("type") == (number.is_integer ? "integer" : "number"));
    CHECK(bound(number.above_min ? "exclusiveMinimum" : "minimum") == number.min);
    CHECK_FALSE(bound(number.above_min ? "minimum" : "exclusiveMinimum").has_value());
    CHECK(bound("maximum").has_value() == (number.max < std::numeric_limits<int32_t>::max()));
    CHECK(bound("maximum").value_or(number.max) == number.max);
    CHECK_FALSE(property.at("description").as_string().empty());
  }
}

}  // namespace
}  // namespace stagecoach::router::http
