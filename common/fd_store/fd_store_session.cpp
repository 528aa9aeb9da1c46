#include "common/fd_store/fd_store_session.h"

#include <pthread.h>
#include <sys/socket.h>

#include <optional>
#include <utility>

#include "stagecoach/v1/fd_store.pb.h"

namespace stagecoach {
namespace {

Packet Answer(FdStore& store, Packet packet) {
  v1::FdStoreRequest request;
  v1::FdStoreResponse response;
  response.set_outcome(v1::FD_STORE_OUTCOME_REFUSED);
  Packet answer;
  if (!request.ParseFromString(packet.bytes)) request.Clear();
  if (request.has_keep() && packet.fd.valid()) {
    v1::FdStoreKeep& keep = *request.mutable_keep();
    store.Keep(keep.name(),
               {.description = std::move(*keep.mutable_description()), .fd = std::move(packet.fd)});
    response.set_outcome(v1::FD_STORE_OUTCOME_DONE);
  } else if (request.has_get()) {
    std::optional<KeptFd> kept = store.Get(request.get());
    response.set_outcome(kept ? v1::FD_STORE_OUTCOME_FOUND : v1::FD_STORE_OUTCOME_NOT_FOUND);
    if (kept) {
      response.set_description(std::move(kept->description));
      answer.fd = std::move(kept->fd);
    }
  } else if (request.has_drop()) {
    store.Drop(request.drop());
    response.set_outcome(v1::FD_STORE_OUTCOME_DONE);
  }
  answer.bytes = response.SerializeAsString();
  return answer;
}

}  // namespace

FdStoreSession::FdStoreSession(UniqueFd socket, FdStore* store)
    : socket_(std::move(socket)), store_(store), thread_([this] { Serve(); }) {}

FdStoreSession::~FdStoreSession() {
  shutdown(socket_.get(), SHUT_RDWR);  // packets that have come can still be read
  thread_.join();
}

void FdStoreSession::Serve() {
  pthread_setname_np(pthread_self(), "fd store");
  while (true) {
    absl::StatusOr<Packet> request = ReceivePacket(socket_);
    if (!request.ok()) return;
    const Packet answer = Answer(*store_, *std::move(request));
    // No error counts: a process that has died still had its request carried out.
    SendPacket(socket_, answer.bytes, answer.fd.get()).IgnoreError();
  }
}

}  // namespace stagecoach
