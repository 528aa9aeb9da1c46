#include "common/listen_check.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/local_host.h"
#include "common/port_holder.h"

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

// `port` is in use.
std::string WhoListens(const std::string& port) {
  const std::string holder = PortHolder(static_cast<uint16_t>(std::stoul(port)));
  if (!holder.empty()) return holder + " has this port; stop it, or give another port";
  return fmt::format(
      "another user's process has this port; give another port (`ss -ltnp sport = :{}`, as root, "
      "names the process)",
      port);
}

}  // namespace

absl::Status CheckCanListen(const std::string& flag, const std::string& address) {
  const auto refused = [&](std::string_view why) {
    return absl::UnavailableError(fmt::format("cannot listen on {} ({}): {}", address, flag, why));
  };
  const auto no_host = [&](std::string_view why) {
    return refused(fmt::format("check that the host is an address of this machine ({})", why));
  };
  const std::string host(HostName(address));
  const std::string port = address.substr(address.rfind(':') + 1);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return no_host(gai_strerror(error));
  }
  // A name may stand for several addresses, of which some may not be there: one is enough.
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    error = TryToListen(*at);
    if (error == 0) break;
  }
  freeaddrinfo(found);
  if (error == 0) return absl::OkStatus();
  if (error == EADDRINUSE) return refused(WhoListens(port));
  if (error == EADDRNOTAVAIL) return no_host(std::strerror(error));
  return refused(std::strerror(error));
}

}  // namespace stagecoach
