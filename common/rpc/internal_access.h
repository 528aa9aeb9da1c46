// How router and workers know each other: a secret that each call carries, and TLS on both sides
// where it is asked for.
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
  std::string secret;              // empty: none
  std::optional<TlsIdentity> tls;  // absent: plain HTTP/2
  std::string tls_name;            // that peers' certificates have; empty: their address's host
};

// Reads the files. INVALID_ARGUMENT names the flag.
absl::StatusOr<InternalAccess> ReadInternalAccess(const InternalFlags& flags);

// What a worker may listen on without a secret is reached from this machine alone.
// FAILED_PRECONDITION says what to do.
absl::Status CheckListen(const std::string& address, const InternalAccess& access,
                         bool insecure_no_secret);

// To a worker. As MakeChannel; each call carries the secret.
std::shared_ptr<grpc::Channel> MakeInternalChannel(const std::string& address,
                                                   const InternalAccess& access,
                                                   int max_message_bytes);

// A worker's port: calls without the secret are UNAUTHENTICATED at once, but for the health
// service's Check (probe_service.h). `port` is written by the builder's BuildAndStart.
void AddInternalPort(grpc::ServerBuilder& builder, const std::string& address,
                     const InternalAccess& access, int* port);

}  // namespace stagecoach
