// Serves a store to one process, over one end of MakePacketSockets.
#pragma once

#include <thread>

#include "common/fd_store/fd_packet.h"
#include "common/fd_store/fd_store.h"

namespace stagecoach {

class FdStoreSession {
 public:
  // `store` outlives the session. Answers on a thread of its own until the other end is closed.
  FdStoreSession(UniqueFd socket, FdStore* store);
  // Carries out what the process has sent so far, and ends.
  ~FdStoreSession();
  FdStoreSession(const FdStoreSession&) = delete;
  FdStoreSession& operator=(const FdStoreSession&) = delete;

 private:
  void Serve();

  const UniqueFd socket_;
  FdStore* const store_;
  std::thread thread_;
};

}  // namespace stagecoach
