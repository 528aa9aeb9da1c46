#include "common/model/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "common/json_text.h"
#include "common/status.h"

namespace stagecoach {
namespace {

namespace json = boost::json;

constexpr size_t kMaxFileBytes = 16 << 20;

std::string Excerpt(const json::value& value) {
  std::string text = JsonText(value);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

constexpr std::string_view kInfinity = "Infinity";

// Python writes an infinite number as Infinity, which is not JSON. transformers from version 5 on
// writes {"__float__": "Infinity"}. Returns the text with the latter for the former.
std::string SpellInfinity(std::string text) {
  if (text.find(kInfinity) == text.npos) return text;
  std::string result;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!in_string && std::string_view(text).substr(i).starts_with(kInfinity)) {
      result += R"({"__float__": "Infinity"})";
      i += kInfinity.size() - 1;
      continue;
    }
    result += text[i];
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) result += text[++i];
  }
  return result;
}

bool IsInfinity(const json::value& value) {
  const json::object* object = value.if_object();
  const json::value* name = object != nullptr ? object->if_contains("__float__") : nullptr;
  return name != nullptr && name->is_string() && name->get_string() == kInfinity;
}

}  // namespace

absl::StatusOr<json::value> ReadJson(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::NotFoundError(fmt::format("{}: no such file", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::PermissionDeniedError(fmt::format("{}: cannot be read", path));
  // Read one byte more than the file's current size, so that the limit also holds if the file
  // grows.
  const uint64_t n_bytes = std::filesystem::file_size(path, error);
  std::string text(std::min<uint64_t>(error ? kMaxFileBytes : n_bytes, kMaxFileBytes) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        fmt::format("{}: larger than 16 MB, the limit for such a file", path));
  }
  json::error_code parse_error;
  json::value value = json::parse(SpellInfinity(std::move(text)), parse_error);
  if (parse_error) {
    return absl::InvalidArgumentError(
        fmt::format("{}: not valid JSON ({})", path, parse_error.message()));
  }
  return value;
}

absl::StatusOr<std::shared_ptr<const json::object>> ReadJsonObject(const std::string& path) {
  SC_ASSIGN_OR_RETURN(json::value value, ReadJson(path));
  if (!value.is_object()) {
    return absl::InvalidArgumentError(fmt::format("{}: not a JSON object", path));
  }
  return std::make_shared<const json::object>(std::move(value.get_object()));
}

ConfigReader::ConfigReader(std::shared_ptr<const json::object> object, std::string what)
    : object_(std::move(object)), notes_(std::make_shared<Notes>()) {
  notes_->what = std::move(what);
}

ConfigReader::ConfigReader(std::shared_ptr<const json::object> object, std::string prefix,
                           std::shared_ptr<Notes> notes)
    : object_(std::move(object)), prefix_(std::move(prefix)), notes_(std::move(notes)) {}

const json::value* ConfigReader::Find(std::string_view key) const {
  const json::value* value = object_->if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigReader::Has(std::string_view key) const { return Find(key) != nullptr; }

bool ConfigReader::Mentions(std::string_view key) const {
  return object_->contains(json::string_view(key.data(), key.size()));
}

bool ConfigReader::ok() const { return notes_->problems.empty() && notes_->unsupported.empty(); }

void ConfigReader::Problem(std::string_view key, std::string_view text) {
  notes_->problems.push_back(fmt::format("{}{}: {}", prefix_, key, text));
}

void ConfigReader::Unsupported(std::string_view key, std::string_view text) {
  notes_->unsupported.push_back(fmt::format("{}{}: {}", prefix_, key, text));
}

void ConfigReader::WrongType(std::string_view key, const json::value& value,
                             std::string_view wanted) {
  Problem(key, fmt::format("{} is not {}", Excerpt(value), wanted));
}

std::optional<int32_t> ConfigReader::AsInt(std::string_view key, const json::value& value,
                                           int64_t min, int64_t max) {
  const double* real = value.if_double();
  const bool whole = real != nullptr && std::nearbyint(*real) == *real;
  if (!value.is_int64() && !value.is_uint64() && !whole) {
    WrongType(key, value, "an integer");
    return std::nullopt;
  }
  const double approximate = value.to_number<double>();
  if (approximate < static_cast<double>(min) || approximate > static_cast<double>(max)) {
    Problem(key, fmt::format("{} is outside {} to {}", Excerpt(value), min, max));
    return std::nullopt;
  }
  return static_cast<int32_t>(approximate);
}

int32_t ConfigReader::Int(std::string_view key, int64_t min, int64_t max,
                          std::optional<int32_t> or_else) {
  const json::value* value = Find(key);
  if (value == nullptr) {
    if (!or_else) Problem(key, "missing");
    return or_else.value_or(static_cast<int32_t>(min));
  }
  return AsInt(key, *value, min, max).value_or(static_cast<int32_t>(min));
}

double ConfigReader::Number(std::string_view key, double min, double max,
                            std::optional<double> or_else) {
  const json::value* value = Find(key);
  if (value == nullptr) {
    if (!or_else) Problem(key, "missing");
    return or_else.value_or(min);
  }
  if (!value->is_number()) {
    WrongType(key, *value, "a number");
    return min;
  }
  const double number = value->to_number<double>();
  if (!(number >= min && number <= max)) {
    Problem(key, fmt::format("{} is outside {} to {}", Excerpt(*value), min, max));
    return min;
  }
  return number;
}

bool ConfigReader::Bool(std::string_view key, bool or_else) {
  const json::value* value = Find(key);
  if (value == nullptr) return or_else;
  if (const bool* flag = value->if_bool()) return *flag;
  WrongType(key, *value, "true or false");
  return or_else;
}

bool ConfigReader::BoolOrNumber(std::string_view key, bool or_else) {
  const json::value* value = Find(key);
  if (value == nullptr || !value->is_number()) return Bool(key, or_else);
  return value->to_number<double>() != 0;
}

std::string ConfigReader::String(std::string_view key, std::string_view or_else) {
  const json::value* value = Find(key);
  if (value == nullptr) return std::string(or_else);
  if (const json::string* text = value->if_string()) return std::string(text->data(), text->size());
  WrongType(key, *value, "a string");
  return std::string(or_else);
}

std::vector<std::string> ConfigReader::Strings(std::string_view key) {
  std::vector<std::string> result;
  const json::value* value = Find(key);
  if (value == nullptr) return result;
  const json::array* items = value->if_array();
  if (items == nullptr) {
    WrongType(key, *value, "a list of strings");
    return result;
  }
  for (const json::value& item : *items) {
    if (const json::string* text = item.if_string()) {
      result.emplace_back(text->data(), text->size());
    } else {
      WrongType(fmt::format("{}[{}]", key, result.size()), item, "a string");
      return {};
    }
  }
  return result;
}

std::vector<double> ConfigReader::Numbers(std::string_view key) {
  std::vector<double> result;
  const json::value* value = Find(key);
  if (value == nullptr) return result;
  const json::array* items = value->if_array();
  if (items == nullptr) {
    WrongType(key, *value, "a list of numbers");
    return result;
  }
  for (const json::value& item : *items) {
    if (IsInfinity(item)) {
      result.push_back(std::numeric_limits<double>::infinity());
      continue;
    }
    if (!item.is_number()) {
      WrongType(fmt::format("{}[{}]", key, result.size()), item, "a number");
      return {};
    }
    result.push_back(item.to_number<double>());
  }
  return result;
}

std::vector<int32_t> ConfigReader::IntOrInts(std::string_view key, int64_t min, int64_t max) {
  const json::value* value = Find(key);
  if (value == nullptr) return {};
  std::vector<int32_t> result;
  const auto add = [&](const json::value& item) {
    if (const auto number = AsInt(key, item, min, max)) result.push_back(*number);
  };
  if (const json::array* items = value->if_array()) {
    for (const json::value& item : *items) add(item);
  } else {
    add(*value);
  }
  return result;
}

ConfigReader ConfigReader::Section(std::string_view key) {
  static const auto* const kEmpty =
      new std::shared_ptr<const json::object>(std::make_shared<const json::object>());
  const std::string prefix = fmt::format("{}{}.", prefix_, key);
  const json::value* value = Find(key);
  if (value == nullptr) return ConfigReader(*kEmpty, prefix, notes_);
  const json::object* object = value->if_object();
  if (object == nullptr) {
    WrongType(key, *value, "an object");
    return ConfigReader(*kEmpty, prefix, notes_);
  }
  return ConfigReader(std::shared_ptr<const json::object>(object_, object), prefix, notes_);
}

absl::Status ConfigReader::Finish() const {
  if (ok()) return absl::OkStatus();
  std::vector<std::string> all = notes_->problems;
  all.insert(all.end(), notes_->unsupported.begin(), notes_->unsupported.end());
  const std::string message = fmt::format("{}: {}", notes_->what, fmt::join(all, "; "));
  return notes_->problems.empty() ? absl::UnimplementedError(message)
                                  : absl::InvalidArgumentError(message);
}

}  // namespace stagecoach
