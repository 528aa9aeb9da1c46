#include "router/text/schema_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <functional>
#include <optional>

#include "router/text/client_json.h"

namespace stagecoach::router {
namespace {

namespace json = boost::json;

constexpr std::string_view kOfJson = "failed to compile JSON schema: ";
constexpr std::string_view kUnimplemented = "Unimplemented keys: [";
constexpr std::string_view kUnknownFormat = "Unknown format: ";
constexpr std::string_view kInvalidType = "Invalid type: ";
constexpr std::string_view kOneOf = "oneOf constraints are not supported";

bool IsOneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string Escaped(std::string_view name) {
  std::string escaped;
  for (const char c : name) {
    if (c == '~') {
      escaped += "~0";
    } else if (c == '/') {
      escaped += "~1";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

using Wanted = std::function<bool(const json::object& schema)>;

// The JSON pointer of the first schema in `value` for which `wanted` is true.
std::optional<std::string> Find(const json::value& value, const std::string& path,
                                const Wanted& wanted) {
  if (const json::array* items = value.if_array()) {
    for (size_t i = 0; i < items->size(); ++i) {
      if (auto found = Find((*items)[i], fmt::format("{}/{}", path, i), wanted)) return found;
    }
    return std::nullopt;
  }
  const json::object* const schema = value.if_object();
  if (schema == nullptr) return std::nullopt;
  if (wanted(*schema)) return path;
  for (const auto& [key, member] : *schema) {
    const std::string_view keyword(key);
    if (IsOneOf(keyword, {"const", "enum", "default", "examples"})) continue;
    const std::string inside = fmt::format("{}/{}", path, Escaped(keyword));
    const json::object* const named = member.if_object();
    if (named == nullptr ||
        !IsOneOf(keyword, {"properties", "patternProperties", "$defs", "definitions"})) {
      if (auto found = Find(member, inside, wanted)) return found;
      continue;
    }
    for (const auto& [name, one] : *named) {
      const std::string place = fmt::format("{}/{}", inside, Escaped(std::string_view(name)));
      if (auto found = Find(one, place, wanted)) return found;
    }
  }
  return std::nullopt;
}

bool HasText(const json::object& schema, std::string_view keyword, std::string_view text) {
  const json::value* const value = schema.if_contains(keyword);
  if (value == nullptr) return false;
  const auto is_text = [text](const json::value& one) {
    return one.is_string() && std::string_view(one.get_string()) == text;
  };
  const json::array* const any = value->if_array();
  return any != nullptr ? std::any_of(any->begin(), any->end(), is_text) : is_text(*value);
}

// `rest` up to the end of its line.
std::string_view Line(std::string_view rest) { return rest.substr(0, rest.find('\n')); }

}  // namespace

std::string InSchemaTerms(std::string_view schema, std::string_view message) {
  if (const size_t at = message.find(kOfJson); at != std::string_view::npos) {
    message.remove_prefix(at + kOfJson.size());
  }
  json::parse_options options;
  options.max_depth = 256;
  boost::system::error_code error;
  const json::value root = ParseClientJson(schema, error, options);
  const auto at = [&](const Wanted& wanted) {
    const auto path = error ? std::nullopt : Find(root, "#", wanted);
    return path ? fmt::format("at {}: ", *path) : std::string();
  };
  const auto behind = [&](std::string_view words) -> std::optional<std::string_view> {
    const size_t begin = message.find(words);
    if (begin == std::string_view::npos) return std::nullopt;
    return Line(message.substr(begin + words.size()));
  };
  if (const auto keys = behind(kUnimplemented)) {
    // The list is like "not", "uniqueItems"]. It belongs to the first schema with any of these
    // keywords, so that schema has the first keyword.
    const std::string_view quoted = keys->substr(0, keys->find_first_of(",]"));
    const std::string_view keyword =
        quoted.size() > 2 ? quoted.substr(1, quoted.size() - 2) : quoted;
    return fmt::format("{}the keyword {} is not supported",
                       at([&](const json::object& one) { return one.contains(keyword); }), quoted);
  }
  if (const auto format = behind(kUnknownFormat)) {
    return fmt::format("{}the format \"{}\" is not supported",
                       at([&](const json::object& one) { return HasText(one, "format", *format); }),
                       *format);
  }
  if (const auto type = behind(kInvalidType)) {
    return fmt::format("{}the type \"{}\" does not exist",
                       at([&](const json::object& one) { return HasText(one, "type", *type); }),
                       *type);
  }
  if (message.find(kOneOf) != std::string_view::npos) {
    return at([](const json::object& one) { return one.contains("oneOf"); }) +
           "oneOf is supported only if no value matches two of its schemas; use anyOf";
  }
  return std::string(message);
}

}  // namespace stagecoach::router
