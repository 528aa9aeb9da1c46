#include "cli/launch/memory_place.h"

#include <csignal>
#include <utility>

#include "common/fd_store/fd_packet.h"
#include "common/status.h"

namespace stagecoach::launch {
namespace {

// Somebody else ended the process, or it was told to end: its memory is as the last step left it.
// After any other end, such as a segmentation fault or a lost device, the memory may be damaged.
bool IsTrusted(const ChildExit& exit) {
  return exit.Clean() || exit.signal == SIGKILL || exit.signal == SIGTERM;
}

}  // namespace

absl::StatusOr<UniqueFd> MemoryPlace::Connect() {
  SC_ASSIGN_OR_RETURN(auto ends, MakePacketSockets());
  Connect(std::move(ends.first));
  return std::move(ends.second);
}

void MemoryPlace::Connect(UniqueFd our_end) {
  session_ = std::make_unique<FdStoreSession>(std::move(our_end), &store_);
}

void MemoryPlace::End(const ChildExit& exit) {
  session_ = nullptr;  // carries out what the process still sent
  if (!IsTrusted(exit)) store_.Clear();
}

}  // namespace stagecoach::launch
