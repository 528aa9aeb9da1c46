#include "router/text/argument_types.h"

#include <fmt/format.h>

#include <algorithm>

#include "router/text/blank.h"
#include "router/text/client_json.h"
#include "router/text/literal_call_reader.h"

namespace stagecoach::router {
namespace {

namespace json = boost::json;

// Schemas to look at for one argument: references may form circles, and multiply.
constexpr int kMostSchemas = 200;

JsonTypes TypeOf(const json::value& value) {
  switch (value.kind()) {
    case json::kind::string:
      return kJsonString;
    case json::kind::bool_:
      return kJsonBool;
    case json::kind::null:
      return kJsonNull;
    case json::kind::object:
      return kJsonObject;
    case json::kind::array:
      return kJsonArray;
    default:
      return kJsonNumber;
  }
}

JsonTypes TypeNamed(std::string_view name) {
  if (name == "string") return kJsonString;
  if (name == "number" || name == "integer") return kJsonNumber;
  if (name == "boolean") return kJsonBool;
  if (name == "null") return kJsonNull;
  if (name == "object") return kJsonObject;
  if (name == "array") return kJsonArray;
  return 0;
}

// The union over the members of a list; kJsonAny if there is no list.
template <typename TypesOfItem>
JsonTypes AnyOf(const json::value* list, TypesOfItem types_of) {
  if (list == nullptr || !list->is_array()) return kJsonAny;
  JsonTypes types = 0;
  for (const json::value& item : list->get_array()) types |= types_of(item);
  return types;
}

// `n_left`: schemas that may still be looked at.
JsonTypes TypesOf(const json::value& schema, const json::value& root, int* n_left) {
  const json::object* const object = schema.if_object();
  if (object == nullptr || --*n_left < 0) return kJsonAny;
  JsonTypes types = kJsonAny;
  if (const json::value* type = object->if_contains("type")) {
    const auto named = [](const json::value& name) {
      return name.is_string() ? TypeNamed(name.get_string()) : JsonTypes(0);
    };
    types &= type->is_string() ? named(*type) : AnyOf(type, named);
  }
  if (const json::value* value = object->if_contains("const")) types &= TypeOf(*value);
  types &= AnyOf(object->if_contains("enum"), TypeOf);
  const auto inner = [&](const json::value& item) { return TypesOf(item, root, n_left); };
  types &= AnyOf(object->if_contains("anyOf"), inner);
  types &= AnyOf(object->if_contains("oneOf"), inner);
  if (const json::value* all = object->if_contains("allOf"); all != nullptr && all->is_array()) {
    for (const json::value& item : all->get_array()) types &= inner(item);
  }
  const json::value* const reference = object->if_contains("$ref");
  if (reference != nullptr && reference->is_string() && reference->get_string().starts_with('#')) {
    boost::system::error_code error;
    const json::value* const target =
        root.find_pointer(std::string_view(reference->get_string()).substr(1), error);
    if (target != nullptr) types &= inner(*target);
  }
  return types != 0 ? types : kJsonAny;
}

// Python's spelling of a word, which some templates show to models, in JSON.
std::string_view WordJson(std::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  return text;
}

// Python's spelling of a list or dictionary in JSON; no JSON if it is none.
std::string CollectionJson(std::string_view text) {
  constexpr std::string_view kBegin = "{\"v\": ";
  if (!text.starts_with('[') && !text.starts_with('{')) return "";
  const std::string call = fmt::format("f(v={})", text);
  LiteralCallReader reader(LiteralForm::kPython);
  if (reader.Push(call) < call.size() || !reader.done()) return "";
  const std::string arguments = reader.TakeArguments();
  return arguments.substr(kBegin.size(), arguments.size() - kBegin.size() - 1);
}

// `text` is JSON of one of the types, or a string that `types` does not have: a model may quote
// what its schema does not call a string.
bool IsJsonOf(std::string_view text, JsonTypes types) {
  boost::system::error_code error;
  const json::value value = ParseClientJson(text, error);
  if (error) return false;
  return value.is_string() ? (types & kJsonString) == 0 : (TypeOf(value) & types) != 0;
}

json::value ParseSchema(std::string_view schema) {
  boost::system::error_code error;
  return ParseClientJson(schema, error);
}

}  // namespace

JsonTypes TypesOf(const json::value& schema, const json::value& root) {
  int n_left = kMostSchemas;
  return TypesOf(schema, root, &n_left);
}

ArgumentTypes::ArgumentTypes(std::string_view schema) : schema_(ParseSchema(schema)) {}

JsonTypes ArgumentTypes::Of(std::string_view argument) const {
  const json::object* const object = schema_.if_object();
  if (object == nullptr) return kJsonAny;
  const json::value* const members = object->if_contains("properties");
  const json::value* member = nullptr;
  if (members != nullptr && members->is_object())
    member = members->get_object().if_contains(argument);
  if (member == nullptr) member = object->if_contains("additionalProperties");
  return member != nullptr ? TypesOf(*member, schema_) : kJsonAny;
}

std::string ArgumentJson(std::string_view text, JsonTypes types) {
  if (types != kJsonString) {
    const std::string_view trimmed = WordJson(WithoutBlanks(text));
    if (IsJsonOf(trimmed, types)) return std::string(trimmed);
    const std::string collection = (types & kJsonString) == 0 ? CollectionJson(trimmed) : "";
    if (IsJsonOf(collection, types)) return collection;
  }
  return "\"" + EscapedJson(text) + "\"";
}

std::string EscapedJson(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef", kNamed = "\"\\\b\f\n\r\t",
                             kNames = "\"\\bfnrt";
  std::string out;
  for (const char c : text) {
    const size_t i = kNamed.find(c);
    if (i != std::string_view::npos) {
      out += '\\';
      out += kNames[i];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace stagecoach::router
