// Whether a server can listen on an address, before anything that takes long is begun.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace stagecoach {

// Binds `address` ("127.0.0.1:9000", "[::1]:0", "localhost:9000") for a moment. OK for port 0 of an
// address of this machine. UNAVAILABLE, with `flag`, when the port is in use or the host is not
// this machine's. Another process may still take the port afterwards: the server's own bind
// decides.
absl::Status CheckCanListen(const std::string& flag, const std::string& address);

}  // namespace stagecoach
