// Authentication between router and workers: a secret in every call, and optionally mutual TLS.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/flags/internal_flags.h"
#include "common/rpc/call_gate.h"

namespace grpc {
class Channel;
class ServerBuilder;
}  // namespace grpc

namespace stagecoach {

struct InternalAccess {
  std::string secret;              // empty: no secret
  std::optional<TlsIdentity> tls;  // absent: plain HTTP/2
  std::string tls_name;            // expected in peers' certificates; empty: their address's host
};

// Reads the files. INVALID_ARGUMENT names the flag.
absl::StatusOr<InternalAccess> ReadInternalAccess(const InternalFlags& flags);

// Without a secret, a worker may only listen on an address that is reachable from this machine
// alone. FAILED_PRECONDITION says what to do.
absl::Status CheckListen(const std::string& address, const InternalAccess& access,
                         bool insecure_no_secret);

// Makes a channel to a worker. Like MakeChannel, but each call carries the secret.
std::shared_ptr<grpc::Channel> MakeInternalChannel(const std::string& address,
                                                   const InternalAccess& access,
                                                   int max_message_bytes);

// Adds a worker's port. Calls without the secret end with UNAUTHENTICATED at once, except the
// health service's Check (probe_service.h). The builder's BuildAndStart writes `port`.
void AddInternalPort(grpc::ServerBuilder& builder, const std::string& address,
                     const InternalAccess& access, int* port);

}  // namespace stagecoach
