// Reading a request's JSON with types and ranges: what is wrong is said with the field's name.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::router::http {

inline constexpr size_t kMaxJsonDepth = 100;

// INVALID_ARGUMENT unless `text` is one JSON object in UTF-8 of no more than kMaxJsonDepth levels
// that fits into ClientJsonMemory.
absl::StatusOr<boost::json::object> ParseObject(std::string_view text);

// The fields of one object. Null is as good as absent. The first problem stays: every getter
// afterwards returns nothing, so that a reader asks for all it wants and then looks at status().
class JsonFields {
 public:
  // `object` outlives this. `path` stands before the names: "stream_options."
  explicit JsonFields(const boost::json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  std::optional<bool> Bool(std::string_view name);
  std::optional<double> Number(std::string_view name);
  // The error is silent on a bound that is only its type's: the range proper is checked elsewhere.
  std::optional<int64_t> Integer(std::string_view name, int64_t low, int64_t high);
  std::optional<std::string> String(std::string_view name);
  const boost::json::array* Array(std::string_view name);
  const boost::json::object* Object(std::string_view name);
  // Of any type; null when absent or null.
  const boost::json::value* Any(std::string_view name);

  // INVALID_ARGUMENT "path.name: what", unless there was a problem before.
  void Refuse(std::string_view name, std::string_view what);
  // Takes over the first problem of a reader of something inside.
  void Adopt(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }
  const absl::Status& status() const { return status_; }

 private:
  const boost::json::object& object_;
  const std::string path_;
  absl::Status status_;
};

// An integer in [low, high]; 2.0 is one as well. Nothing for anything else.
std::optional<int64_t> ToInteger(const boost::json::value& value, int64_t low, int64_t high);

// A number as people write it: 2.5.
std::string NumberText(const boost::json::value& value);

// What a value is, for messages: "a string".
std::string_view KindName(const boost::json::value& value);

}  // namespace stagecoach::router::http
