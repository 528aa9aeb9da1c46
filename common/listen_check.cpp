#include "common/listen_check.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/local_host.h"

namespace stagecoach {
namespace {

// 0, or an errno.
int TryToListen(const addrinfo& at) {
  const int fd = socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC, at.ai_protocol);
  if (fd < 0) return errno;
  // The servers set it too: connections of a server that has just ended do not block the port.
  const int yes = 1;
  int error = 0;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(fd, at.ai_addr, at.ai_addrlen) != 0 || listen(fd, 1) != 0) {
    error = errno;
  }
  close(fd);
  return error;
}

}  // namespace

absl::Status CheckCanListen(const std::string& flag, const std::string& address) {
  const auto refused = [&](std::string_view why) {
    return absl::UnavailableError(fmt::format(
        "cannot listen on {} ({}): check that the port is free and that the host is an address of "
        "this machine ({})",
        address, flag, why));
  };
  const std::string host(HostName(address));
  const std::string port = address.substr(address.rfind(':') + 1);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return refused(gai_strerror(error));
  }
  // A name may stand for several addresses, of which some may not be there: one is enough.
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    error = TryToListen(*at);
    if (error == 0) break;
  }
  freeaddrinfo(found);
  return error == 0 ? absl::OkStatus() : refused(std::strerror(error));
}

}  // namespace stagecoach
