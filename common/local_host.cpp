#include "common/local_host.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <string>

namespace stagecoach {
namespace {

bool IsV4(const std::string& name, in_addr* address) {
  return inet_pton(AF_INET, name.c_str(), address) == 1;
}

bool IsV6(const std::string& name, in6_addr* address) {
  return inet_pton(AF_INET6, name.c_str(), address) == 1;
}

}  // namespace

std::string_view HostName(std::string_view host_and_port) {
  if (host_and_port.starts_with('[')) {
    return host_and_port.substr(1, std::min(host_and_port.find(']'), host_and_port.size()) - 1);
  }
  return host_and_port.substr(0, host_and_port.rfind(':'));
}

bool IsLoopbackName(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.ends_with('.')) lower.pop_back();
  if (lower == "localhost" || lower.ends_with(".localhost")) return true;
  in_addr v4;
  if (IsV4(lower, &v4)) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  return IsV6(lower, &v6) && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool IsLocalHost(std::string_view host) {
  const std::string_view name = HostName(host);
  in_addr v4;
  in6_addr v6;
  const std::string text(name);
  return IsLoopbackName(name) || IsV4(text, &v4) || IsV6(text, &v6);
}

}  // namespace stagecoach
