#include "router/frontend/http/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <new>

#include "common/json_text.h"
#include "common/status.h"
#include "common/text/utf8.h"
#include "router/text/client_json.h"

namespace stagecoach::router::http {
namespace json = boost::json;

namespace {

constexpr size_t kEscapeBytes = 6;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Parses all of `text` as one value. On an error, `n_parsed` is its position.
json::value Parse(std::string_view text, bool allow_invalid_utf8, boost::system::error_code& error,
                  size_t& n_parsed) {
  const json::storage_ptr memory = ClientJsonMemory();
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  options.allow_invalid_utf8 = allow_invalid_utf8;
  json::stream_parser parser(memory, options);
  parser.reset(memory);
  n_parsed = parser.write_some(text.data(), text.size(), error);
  if (!error && n_parsed < text.size()) {
    const bool blank = text.find_first_not_of(" \t\r\n", n_parsed) == std::string_view::npos;
    if (!blank) error = json::error::extra_data;
  }
  if (!error) parser.finish(error);
  return error ? nullptr : parser.release();
}

// "messages[0].content: is not valid UTF-8 at byte 5", for the first such string in `value`.
absl::Status FindBrokenText(const json::value& value, const std::string& path) {
  if (value.is_string()) return text::CheckUtf8(path, value.get_string());
  if (const json::array* items = value.if_array()) {
    for (size_t i = 0; i < items->size(); ++i) {
      SC_RETURN_IF_ERROR(FindBrokenText((*items)[i], fmt::format("{}[{}]", path, i)));
    }
  } else if (const json::object* object = value.if_object()) {
    for (const auto& [key, member] : *object) {
      const std::string_view name(key);
      if (!text::IsUtf8(name)) continue;  // the path cannot be printed
      SC_RETURN_IF_ERROR(FindBrokenText(
          member, path.empty() ? std::string(name) : fmt::format("{}.{}", path, name)));
    }
  }
  return absl::OkStatus();
}

absl::Status NotUtf8(std::string_view text, size_t broken_byte) {
  boost::system::error_code error;
  size_t n_parsed = 0;
  const json::value value = Parse(text, /*allow_invalid_utf8=*/true, error, n_parsed);
  if (!error) SC_RETURN_IF_ERROR(FindBrokenText(value, ""));
  return absl::InvalidArgumentError(
      fmt::format("the request's body is not valid UTF-8 at byte {}", broken_byte));
}

// The UTF-16 unit of the escape "\\ud83d" at the start of `text`; absent: no escape.
std::optional<uint16_t> EscapedUnit(std::string_view text) {
  uint16_t unit = 0;
  if (text.size() < kEscapeBytes || !text.starts_with("\\u")) return std::nullopt;
  const char* const end = text.data() + kEscapeBytes;
  const auto parsed = std::from_chars(text.data() + 2, end, unit, 16);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(unit) : std::nullopt;
}

// The position of an escaped surrogate (one half of a character beyond U+FFFF) without its other
// half.
std::optional<size_t> FindHalfPair(std::string_view text) {
  const auto is_first = [](uint16_t unit) { return unit >> 10 == 0xD800 >> 10; };
  const auto is_second = [](uint16_t unit) { return unit >> 10 == 0xDC00 >> 10; };
  for (size_t i = 0; (i = text.find('\\', i)) != std::string_view::npos;) {
    const auto unit = EscapedUnit(text.substr(i));
    if (!unit || (!is_first(*unit) && !is_second(*unit))) {
      i += 2;
      continue;
    }
    const auto next = EscapedUnit(text.substr(std::min(i + kEscapeBytes, text.size())));
    if (!is_first(*unit) || !next || !is_second(*next)) return i;
    i += 2 * kEscapeBytes;
  }
  return std::nullopt;
}

absl::Status NotJson(std::string_view text, const boost::system::error_code& error,
                     size_t n_parsed) {
  if (text.starts_with(kByteOrderMark)) {
    return absl::InvalidArgumentError(
        "the request's body begins with a byte order mark (EF BB BF): send the JSON without it");
  }
  if (const auto broken = text::FirstBrokenByte(text)) return NotUtf8(text, *broken);
  if (const auto half = FindHalfPair(text); half && *half <= n_parsed) {
    return absl::InvalidArgumentError(
        fmt::format("the request's body has only half of a surrogate pair at byte {}: write both "
                    "halves, as in \\ud83d\\ude00, or the character itself",
                    *half));
  }
  return absl::InvalidArgumentError(fmt::format(
      "the request's body is not valid JSON: {} at byte {}", error.message(), n_parsed));
}

}  // namespace

absl::StatusOr<json::object> ParseObject(std::string_view text) try {
  boost::system::error_code error;
  size_t n_parsed = 0;
  json::value value = Parse(text, /*allow_invalid_utf8=*/false, error, n_parsed);
  if (error) return NotJson(text, error, n_parsed);
  if (!value.is_object()) {
    return absl::InvalidArgumentError(
        fmt::format("the request's body must be a JSON object, not {}", KindName(value)));
  }
  return std::move(value.get_object());
} catch (const std::bad_alloc&) {
  return absl::InvalidArgumentError(
      fmt::format("the request's body has too many values: parsed, they take more than {} bytes",
                  kMaxJsonMemoryBytes));
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

std::string NumberText(const json::value& value) {
  return value.is_double() ? fmt::format("{}", value.get_double()) : JsonText(value);
}

namespace {

std::string NotInRange(const json::value& value, int64_t low, int64_t high) {
  const bool has_low = low > std::numeric_limits<int32_t>::min();
  const bool has_high = high < std::numeric_limits<int32_t>::max();
  if (has_low && has_high) return fmt::format("is not an integer in [{}, {}]", low, high);
  const double number = value.to_number<double>();
  if (std::trunc(number) != number) return "is not an integer";
  if (has_low && number < static_cast<double>(low)) return fmt::format("is not >= {}", low);
  return number < 0 ? "is too small" : "is too large";
}

}  // namespace

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
  if (!value->is_number()) {
    Refuse(name, fmt::format("must be a number, not {}", KindName(*value)));
    return std::nullopt;
  }
  const auto number = value->to_number<double>();
  if (std::abs(number) <= std::numeric_limits<float>::max()) return number;
  Refuse(name, fmt::format("{} is too {}", NumberText(*value), number < 0 ? "small" : "large"));
  return std::nullopt;
}

std::optional<int64_t> JsonFields::Integer(std::string_view name, int64_t low, int64_t high) {
  const json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (const auto integer = ToInteger(*value, low, high)) return integer;
  if (value->is_number()) {
    Refuse(name, fmt::format("{} {}", NumberText(*value), NotInRange(*value, low, high)));
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
