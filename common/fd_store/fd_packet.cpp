#include "common/fd_store/fd_packet.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

// Room for the control message that carries one descriptor.
union FdControl {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr alignment;
};

absl::Status Lost(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<std::pair<UniqueFd, UniqueFd>> MakePacketSockets() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot make a socket: ", strerror(errno)));
  }
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

absl::Status SendPacket(const UniqueFd& socket, std::string_view bytes, int fd) {
  if (bytes.size() > kMaxPacketBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of ", bytes.size(), " bytes is above the limit of ", kMaxPacketBytes));
  }
  iovec data{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  FdControl control{};
  if (fd >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  while (sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return Lost("cannot send");
  }
  return absl::OkStatus();
}

absl::StatusOr<Packet> ReceivePacket(const UniqueFd& socket) {
  Packet packet;
  packet.bytes.resize(kMaxPacketBytes);
  iovec data{.iov_base = packet.bytes.data(), .iov_len = packet.bytes.size()};
  FdControl control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  ssize_t n = 0;
  while ((n = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno != EINTR) return Lost("cannot receive");
  }
  if (n == 0) return absl::UnavailableError("the other end is closed");
  packet.bytes.resize(static_cast<size_t>(n));
  if (const cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    packet.fd = UniqueFd(fd);
  }
  return packet;
}

}  // namespace stagecoach
