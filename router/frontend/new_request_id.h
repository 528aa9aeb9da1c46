// Request ids, which are also stream ids. An id that a server makes names its instance, so that
// another server knows that it cannot have the stream.
#pragma once

#include <string>
#include <string_view>

namespace stagecoach::router {

// The id of this process: random, or that of the router whose streams it goes on with.
const std::string& InstanceId();
// Call it before the first request.
void SetInstanceId(const std::string& id);

// "INSTANCE-RANDOM", in hexadecimal digits.
std::string NewRequestId();

// Whether the id has the form that servers make, with another instance's id. A client may choose an
// id of this form; if its stream is not found, the error then names a replica that does not exist.
bool IsOfAnotherInstance(std::string_view id);

}  // namespace stagecoach::router
