// Whether a name that a browser was given can only mean this machine.
#pragma once

#include <string_view>

namespace stagecoach {

// "localhost" of "localhost:8000", "::1" of "[::1]:8000" and of "[::1]".
std::string_view HostName(std::string_view host_and_port);

// "localhost", a name below it, or a loopback address; without a port.
bool IsLoopbackName(std::string_view name);

// `host`: a Host header field. An address is no name that a stranger's DNS could lead here, nor is
// "localhost"; any other name is.
bool IsLocalHost(std::string_view host);

}  // namespace stagecoach
