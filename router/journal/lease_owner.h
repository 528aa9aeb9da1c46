// Who holds a journal's lease: a name for this process that a later process of the same machine can
// ask about.
#pragma once

#include <string>
#include <string_view>

namespace stagecoach::router {

// "HOST/PID/...", unlike all others. Text after another slash makes several names of it.
std::string NewLeaseOwner();

// The part of the name that says something to people: "process PID of HOST".
std::string Describe(std::string_view owner);

// Whether the process has certainly ended: it ran on this machine, in this process's PID namespace.
// False also if nothing is known about it.
bool HasEnded(std::string_view owner);

}  // namespace stagecoach::router
