#include "router/frontend/http/json_fields.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <new>

#include "router/text/client_json.h"

namespace stagecoach::router::http {
namespace json = boost::json;
absl::StatusOr<json::object> ParseObject(std::string_view text) try {
  const json::storage_ptr memory = ClientJsonMemory();
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::stream_parser parser(memory, options);
  parser.reset(memory);
  boost::system::error_code error;
  const size_t n_parsed = parser.write_some(text.data(), text.size(), error);
  if (!error && n_parsed < text.size()) {
    const bool blank = text.find_first_not_of(" \t\r\n", n_parsed) == std::string_view::npos;
    if (!blank) error = json::error::extra_data;
  }
  if (!error) parser.finish(error);
  if (error) {
    return absl::InvalidArgumentError(fmt::format(
        "the request's body is not valid JSON: {} at byte {}", error.message(), n_parsed));
  }
  json::value value = parser.release();
  if (!value.is_object()) {
    return absl::InvalidArgumentError(
        fmt::format("the request's body must be a JSON object, not {}", KindName(value)));
  }
  return std::move(value.get_object());
} catch (const std::bad_alloc&) {
  return absl::InvalidArgumentError(fmt::format(
      "the request's body has too many values: they take more than {} bytes", kMaxJsonMemoryBytes));
}

std::string_view KindName(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
    default:
      return "a number";
  }
}

std::optional<int64_t> ToInteger(const json::value& value, int64_t low, int64_t high) {
  int64_t integer = 0;
  if (value.is_int64()) {
    integer = value.get_int64();
  } else if (value.is_double() && std::trunc(value.get_double()) == value.get_double() &&
             std::abs(value.get_double()) < 9e15) {
    integer = static_cast<int64_t>(value.get_double());
  } else {
    return std::nullopt;
  }
  if (integer < low || integer > high) return std::nullopt;
  return integer;
}

const json::value* JsonFields::Any(std::string_view name) {
  if (!status_.ok()) return nullptr;
  const json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void JsonFields::Refuse(std::string_view name, std::string_view what) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(fmt::format("{}{}: {}", path_, name, what));
}

std::optional<bool> JsonFields::Bool(std::string_view name) {
  const json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  Refuse(name, fmt::format("must be true or false, not {}", KindName(*value)));
  return std::nullopt;
}

std::optional<double> JsonFields::Number(std::string_view name) {
  const json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_double()) return value->get_double();
  if (value->is_int64()) return static_cast<double>(value->get_int64());
  if (value->is_uint64()) return static_cast<double>(value->get_uint64());
  Refuse(name, fmt::format("must be a number, not {}", KindName(*value)));
  return std::nullopt;
}

std::optional<int64_t> JsonFields::Integer(std::string_view name, int64_t low, int64_t high) {
  const json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (const auto integer = ToInteger(*value, low, high)) return integer;
  if (value->is_number()) {
    Refuse(name,
           fmt::format("{} is not an integer in [{}, {}]", json::serialize(*value), low, high));
  } else {
    Refuse(name, fmt::format("must be an integer, not {}", KindName(*value)));
  }
  return std::nullopt;
}

std::optional<std::string> JsonFields::String(std::string_view name) {
  const json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::string(value->get_string());
  Refuse(name, fmt::format("must be a string, not {}", KindName(*value)));
  return std::nullopt;
}

const json::array* JsonFields::Array(std::string_view name) {
  const json::value* value = Any(name);
  if (value == nullptr) return nullptr;
  if (value->is_array()) return &value->get_array();
  Refuse(name, fmt::format("must be an array, not {}", KindName(*value)));
  return nullptr;
}

const json::object* JsonFields::Object(std::string_view name) {
  const json::value* value = Any(name);
  if (value == nullptr) return nullptr;
  if (value->is_object()) return &value->get_object();
  Refuse(name, fmt::format("must be an object, not {}", KindName(*value)));
  return nullptr;
}

}  // namespace stagecoach::router::http
