// Checks whether a host name from a browser can only mean this machine.
#pragma once

#include <string_view>

namespace stagecoach {

// Returns the host part without port and brackets: "localhost" for "localhost:8000", "::1" for
// "[::1]:8000" and "[::1]".
std::string_view HostName(std::string_view host_and_port);

// True for "localhost", for a name below it, and for a loopback address. `name` has no port.
bool IsLoopbackName(std::string_view name);

// `host` is the value of a Host header field. Returns true for "localhost" and for any IP address:
// an attacker's DNS entry cannot make them point to this machine (DNS rebinding). Returns false for
// every other name.
bool IsLocalHost(std::string_view host);

}  // namespace stagecoach
