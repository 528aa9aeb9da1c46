// Explains why protobuf could not parse a message.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace google::protobuf {
class Descriptor;
}

namespace stagecoach {

// `wire`: bytes that protobuf could not parse as a `type`. Returns INVALID_ARGUMENT. If a text is
// not UTF-8, the message names it: "messages[2].content: is not valid UTF-8 at byte 5".
absl::Status WhyUnreadable(const google::protobuf::Descriptor& type, std::string_view wire);

// Redirects protobuf's messages about such input from standard error to the log, at debug level and
// at most one line per second: otherwise any client could flood standard error. May be called any
// number of times.
void TameProtobufLog();

}  // namespace stagecoach
