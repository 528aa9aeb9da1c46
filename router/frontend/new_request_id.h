// Ids of requests, which are also those of streams. Those that a server makes say which one did, so
// that another knows that it cannot have the stream.
#pragma once

#include <string>
#include <string_view>

namespace stagecoach::router {

// This process's: random, the same as long as it runs.
const std::string& InstanceId();

// "INSTANCE-RANDOM", in hexadecimal digits.
std::string NewRequestId();

// Whether the id has the form of those that servers make, and another one's instance. A client may
// choose an id of that form: it then hears of a replica that does not exist.
bool IsOfAnotherInstance(std::string_view id);

}  // namespace stagecoach::router
