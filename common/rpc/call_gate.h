// Admits or refuses a call by its metadata alone. gRPC runs the gate when the headers have arrived,
// before any handler, thread or interceptor sees the call and before it reads a byte of the first
// message: data of a refused client stays in the HTTP/2 flow-control window. A message size limit
// would not help, because gRPC 1.51 buffers the whole message before it checks the size.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

struct grpc_metadata;

namespace stagecoach {

// The headers of a call. Valid only inside the gate.
class CallHead {
 public:
  CallHead(const grpc_metadata* metadata, size_t n) : metadata_(metadata), n_(n) {}

  // "/stagecoach.v1.Stage/Load"
  std::string_view path() const { return Find(":path").value_or(""); }
  // Returns the first value of `key`, which must be lower case.
  std::optional<std::string_view> Find(std::string_view key) const;

 private:
  const grpc_metadata* const metadata_;
  const size_t n_;
};

// PEM texts. If `ca` is given, clients need a certificate signed by it.
struct TlsIdentity {
  std::string cert_chain, key, ca;
};

// Must not block. Called from any thread. A status that is not OK ends the call with that status.
using AdmitCall = std::function<absl::Status(const CallHead&)>;

// Credentials for ServerBuilder::AddListeningPort. Without `tls` the port speaks plain HTTP/2.
std::shared_ptr<grpc::ServerCredentials> GatedCredentials(const std::optional<TlsIdentity>& tls,
                                                          AdmitCall admit);

}  // namespace stagecoach
