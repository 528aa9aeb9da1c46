// Sets protobuf fields from JSON values, by field name.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "absl/status/status.h"

namespace google::protobuf {
class Message;
}

namespace stagecoach::cli {

// Sets the field `name` of `message`: a number, bool, string, a list of these, or a map from
// integers to numbers. NOT_FOUND if there is no such field, INVALID_ARGUMENT if the value does not
// fit.
absl::Status SetField(google::protobuf::Message& message, std::string_view name,
                      const boost::json::value& value);

}  // namespace stagecoach::cli
