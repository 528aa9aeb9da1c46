// Why the bytes of a message are none.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace google::protobuf {
class Descriptor;
}

namespace stagecoach {

// `wire`: what protobuf did not parse as a `type`. INVALID_ARGUMENT, which names the text that is
// not UTF-8 where that is the reason: "messages[2].content: is not valid UTF-8 at byte 5".
absl::Status WhyUnreadable(const google::protobuf::Descriptor& type, std::string_view wire);

// What protobuf has to say of such messages goes to the log at debug level, at most a line a
// second, in place of standard error: any client could fill that. Any number of calls.
void TameProtobufLog();

}  // namespace stagecoach
