// The JSON types that a tool's schema allows for its arguments.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace stagecoach::router {

// A set of JSON types.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kJsonString = 1, kJsonNumber = 2, kJsonBool = 4, kJsonNull = 8,
                           kJsonObject = 16, kJsonArray = 32, kJsonAny = 63;

// The types that `schema` allows, as far as type, enum, const, anyOf, oneOf, allOf and references
// into `root` say. kJsonAny if they say nothing.
JsonTypes TypesOf(const boost::json::value& schema, const boost::json::value& root);

// One tool's schema.
class ArgumentTypes {
 public:
  // `schema`: a JSON Schema; "" or no JSON: every argument may have any type.
  explicit ArgumentTypes(std::string_view schema);
  ArgumentTypes(const ArgumentTypes&) = delete;  // a copy would leave the client's memory
  ArgumentTypes& operator=(const ArgumentTypes&) = delete;

  JsonTypes Of(std::string_view argument) const;

 private:
  const boost::json::value schema_;
};

// JSON for the value of an argument that the model wrote without JSON's quotes. The text is the
// value's JSON if that has one of the types, or Python's spelling of a list or dictionary where no
// string may be; otherwise it is a string.
std::string ArgumentJson(std::string_view text, JsonTypes types);

// The inside of a JSON string with this text, which may be part of one.
std::string EscapedJson(std::string_view text);

}  // namespace stagecoach::router
