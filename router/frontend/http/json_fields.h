// Reads a request's JSON with types and ranges; error messages name the field.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::router::http {

inline constexpr size_t kMaxJsonDepth = 100;

// Bounds for JsonFields::Integer that are only those of a field's type.
inline constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMinInt32 = std::numeric_limits<int32_t>::min();

// INVALID_ARGUMENT unless `text` is one JSON object in UTF-8 of no more than kMaxJsonDepth levels
// that fits into ClientJsonMemory.
absl::StatusOr<boost::json::object> ParseObject(std::string_view text);

// The fields of one object. Null counts as absent. The first error is kept, and every later getter
// returns nothing. So a reader can read all fields and then check status().
class JsonFields {
 public:
  // `object` outlives this. `path` is the prefix of field names: "stream_options."
  explicit JsonFields(const boost::json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  std::optional<bool> Bool(std::string_view name);
  // Within the range of a float, which the fields of messages are.
  std::optional<double> Number(std::string_view name);
  // The error message omits a bound that is only the type's limit; other code checks the real
  // range.
  std::optional<int64_t> Integer(std::string_view name, int64_t low, int64_t high);
  std::optional<std::string> String(std::string_view name);
  const boost::json::array* Array(std::string_view name);
  const boost::json::object* Object(std::string_view name);
  // A value of any type; null if absent or null.
  const boost::json::value* Any(std::string_view name);

  // Sets INVALID_ARGUMENT "path.name: what", unless there is an error already.
  void Refuse(std::string_view name, std::string_view what);
  // Takes over the first error of a reader of a nested object.
  void Adopt(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }
  const absl::Status& status() const { return status_; }

 private:
  const boost::json::object& object_;
  const std::string path_;
  absl::Status status_;
};

// An integer in [low, high]; 2.0 counts as an integer. Otherwise absent.
std::optional<int64_t> ToInteger(const boost::json::value& value, int64_t low, int64_t high);

// A number in short decimal form: 2.5.
std::string NumberText(const boost::json::value& value);

// The kind of a value, for messages: "a string".
std::string_view KindName(const boost::json::value& value);

}  // namespace stagecoach::router::http
