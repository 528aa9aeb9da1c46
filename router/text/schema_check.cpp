#include "router/text/schema_check.h"

#include <algorithm>
#include <boost/json.hpp>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/text/client_json.h"

namespace stagecoach::router {
namespace {

namespace json = boost::json;

constexpr std::string_view kJsonKeyword = "%json";

json::parse_options ParseOptions() {
  json::parse_options options;
  options.max_depth = 256;  // the compiler rejects deeper ones
  return options;
}

// The number of distinct required names: 2 for "required": ["a", "b", "a"].
size_t CountRequired(const json::object& schema) {
  const json::value* required = schema.if_contains("required");
  if (required == nullptr || !required->is_array()) return 0;
  std::set<std::string_view> names;
  for (const json::value& name : required->get_array()) {
    if (name.is_string()) names.insert(name.get_string());
  }
  return names.size();
}

// The grammar counts members but does not know their names: it counts {"a":1,"a":2} as two, but
// this object has one.
bool CountsUnknownMembers(const json::value& schema) {
  if (const json::array* items = schema.if_array()) {
    return std::any_of(items->begin(), items->end(), CountsUnknownMembers);
  }
  const json::object* object = schema.if_object();
  if (object == nullptr) return false;
  const json::value* least = object->if_contains("minProperties");
  if (least != nullptr && least->is_number() &&
      least->to_number<double>() > std::max<double>(1, CountRequired(*object))) {
    return true;
  }
  return std::any_of(object->begin(), object->end(),
                     [](const auto& member) { return CountsUnknownMembers(member.value()); });
}

absl::Status CheckCounts(const json::value& schema) {
  if (!CountsUnknownMembers(schema)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "minProperties cannot be enforced for members that are not listed, because a member may come "
      "twice: list them as required");
}

bool Asks(const json::value& schema, std::string_view option) {
  const json::object* const object = schema.if_object();
  const json::value* const options =
      object == nullptr ? nullptr : object->if_contains("x-guidance");
  if (options == nullptr || !options->is_object()) return false;
  const json::value* const value = options->get_object().if_contains(option);
  return value != nullptr && *value != json::value(false);
}

absl::Status CheckBehindKeyword(const json::value& schema, bool may_be_lenient) {
  if (may_be_lenient && Asks(schema, "lenient")) return absl::OkStatus();
  for (const char* const option : {"lenient", "coerce_one_of"}) {
    if (!Asks(schema, option)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        option, " in x-guidance is not allowed: it accepts values that the schema forbids"));
  }
  return CheckCounts(schema);
}

// The position after the last word with which a schema could request what CheckBehindKeyword
// rejects.
size_t EndOfCritical(std::string_view text) {
  size_t end = 0;
  for (const std::string_view critical : {"\"minProperties\"", "x-guidance", "\\u"}) {
    const size_t at = text.rfind(critical);
    if (at != std::string_view::npos) end = std::max(end, at + critical.size());
  }
  return end;
}

absl::Status CheckLark(std::string_view text, bool may_be_lenient) {
  const size_t end_of_critical = EndOfCritical(text);
  // This also searches the strings of a schema: only the compiler knows which occurrences are
  // keywords.
  for (size_t at = text.find(kJsonKeyword); at != std::string_view::npos;
       at = text.find(kJsonKeyword, at + kJsonKeyword.size())) {
    const std::string_view rest = text.substr(at + kJsonKeyword.size());
    json::stream_parser parser({}, ParseOptions());
    parser.reset(ClientJsonMemory());
    boost::system::error_code error;
    parser.write_some(rest.data(), rest.size(), error);
    if (!error && !parser.done()) parser.finish(error);
    if (!error) {
      SC_RETURN_IF_ERROR(CheckBehindKeyword(parser.release(), may_be_lenient));
      continue;
    }
    // Not JSON, so either the compiler reports it or the word is inside a text. But the two parsers
    // may differ, so reject it if a critical word follows.
    if (may_be_lenient || end_of_critical <= at) continue;
    return absl::InvalidArgumentError("the schema after %json is not valid JSON");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSchemas(const text::GrammarSource& source, bool may_be_lenient) {
  if (source.text.size() > text::kMaxGrammarBytes) return absl::OkStatus();
  if (source.kind == text::GrammarKind::kLark) return CheckLark(source.text, may_be_lenient);
  if (source.kind != text::GrammarKind::kJsonSchema) return absl::OkStatus();
  boost::system::error_code error;
  const json::value schema = ParseClientJson(source.text, error, ParseOptions());
  return error ? absl::OkStatus() : CheckCounts(schema);
}

}  // namespace stagecoach::router
