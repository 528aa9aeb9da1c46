#include "common/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <iterator>
#include <string_view>

namespace stagecoach {
namespace {

namespace json = boost::json;

void AppendString(std::string_view text, std::string& to) {
  const bool as_it_is = std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\' && c != 0x7F;
  });
  if (!as_it_is) {
    to += json::serialize(json::string_view(text.data(), text.size()));
    return;
  }
  to += '"';
  to += text;
  to += '"';
}

void AppendNumber(double number, std::string& to) {
  if (!std::isfinite(number)) {
    to += "null";
    return;
  }
  const size_t begin = to.size();
  fmt::format_to(std::back_inserter(to), "{}", number);
  // Keep it a floating-point number for readers that distinguish integers.
  if (to.find_first_of(".e", begin) == std::string::npos) to += ".0";
}

}  // namespace

void AppendJsonText(const json::array& array, std::string& to) {
  to += '[';
  for (const json::value& item : array) {
    AppendJsonText(item, to);
    to += ',';
  }
  if (!array.empty()) to.pop_back();
  to += ']';
}

void AppendJsonText(const json::object& object, std::string& to) {
  to += '{';
  for (const auto& [key, member] : object) {
    AppendString(key, to);
    to += ':';
    AppendJsonText(member, to);
    to += ',';
  }
  if (!object.empty()) to.pop_back();
  to += '}';
}

void AppendJsonText(const json::value& value, std::string& to) {
  switch (value.kind()) {
    case json::kind::double_:
      return AppendNumber(value.get_double(), to);
    case json::kind::string:
      return AppendString(value.get_string(), to);
    case json::kind::array:
      return AppendJsonText(value.get_array(), to);
    case json::kind::object:
      return AppendJsonText(value.get_object(), to);
    default:
      to += json::serialize(value);
  }
}

std::string JsonText(const json::value& value) {
  std::string text;
  AppendJsonText(value, text);
  return text;
}

}  // namespace stagecoach
