// Messages over a Unix socket that keeps their borders (SOCK_SEQPACKET), each with at most one file
// descriptor.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/unique_fd.h"

namespace stagecoach {

inline constexpr size_t kMaxPacketBytes = size_t{64} << 10;

struct Packet {
  std::string bytes;
  UniqueFd fd;  // a copy of the sender's; may be absent
};

// Two ends of a new connection. RESOURCE_EXHAUSTED if no descriptor is free.
absl::StatusOr<std::pair<UniqueFd, UniqueFd>> MakePacketSockets();

// fd -1: none. INVALID_ARGUMENT above kMaxPacketBytes, UNAVAILABLE if the other end is closed.
absl::Status SendPacket(const UniqueFd& socket, std::string_view bytes, int fd = -1);
// Blocks. UNAVAILABLE if the other end is closed, after all packets that it sent.
absl::StatusOr<Packet> ReceivePacket(const UniqueFd& socket);

}  // namespace stagecoach
