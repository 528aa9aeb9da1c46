// Splits "HOST:PORT" and "[::1]:PORT".
#pragma once

#include <string>

namespace stagecoach {

struct HostPort {
  std::string host;  // without brackets
  std::string port;  // empty: no port was given
};

inline HostPort SplitHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  const size_t bracket = address.rfind(']');
  const bool has_port =
      colon != std::string::npos && (bracket == std::string::npos || bracket < colon);
  HostPort place{.host = has_port ? address.substr(0, colon) : address,
                 .port = has_port ? address.substr(colon + 1) : ""};
  if (place.host.size() >= 2 && place.host.front() == '[' && place.host.back() == ']') {
    place.host = place.host.substr(1, place.host.size() - 2);
  }
  return place;
}

}  // namespace stagecoach
