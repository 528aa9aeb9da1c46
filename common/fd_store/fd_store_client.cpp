#include "common/fd_store/fd_store_client.h"

#include <utility>

#include "common/fd_store/fd_packet.h"
#include "common/status.h"
#include "stagecoach/v1/fd_store.pb.h"

namespace stagecoach {

FdStoreClient::FdStoreClient(UniqueFd socket) : socket_(std::move(socket)) {}

absl::StatusOr<std::optional<KeptFd>> FdStoreClient::Call(const v1::FdStoreRequest& request,
                                                          int fd) {
  const MutexLock lock(mutex_);
  SC_RETURN_IF_ERROR(SendPacket(socket_, request.SerializeAsString(), fd));
  SC_ASSIGN_OR_RETURN(Packet packet, ReceivePacket(socket_));
  v1::FdStoreResponse response;
  if (!response.ParseFromString(packet.bytes) ||
      response.outcome() == v1::FD_STORE_OUTCOME_REFUSED) {
    return absl::InternalError("the store refuses a request: run the same version everywhere");
  }
  if (response.outcome() != v1::FD_STORE_OUTCOME_FOUND || !packet.fd.valid()) return std::nullopt;
  return KeptFd{.description = std::move(*response.mutable_description()),
                .fd = std::move(packet.fd)};
}

absl::Status FdStoreClient::Keep(const std::string& name, const std::string& description,
                                 const UniqueFd& fd) {
  v1::FdStoreRequest request;
  request.mutable_keep()->set_name(name);
  request.mutable_keep()->set_description(description);
  return Call(request, fd.get()).status();
}

absl::StatusOr<std::optional<KeptFd>> FdStoreClient::Get(const std::string& name) {
  v1::FdStoreRequest request;
  request.set_get(name);
  return Call(request);
}

absl::Status FdStoreClient::Drop(const std::string& name) {
  v1::FdStoreRequest request;
  request.set_drop(name);
  return Call(request).status();
}

}  // namespace stagecoach
