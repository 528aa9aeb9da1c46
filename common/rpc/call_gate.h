// Lets a call in, or refuses it, by its metadata alone. gRPC asks when the headers are here, before
// any handler, thread or interceptor hears of the call and before a byte of its first message is
// taken: what a stranger sends stays in HTTP/2's window. (A message limit would be no help: gRPC
// 1.51 gathers a message in full before it looks at its size.)
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

// A call's headers, while the gate is asked.
class CallHead {
 public:
  CallHead(const grpc_metadata* metadata, size_t n) : metadata_(metadata), n_(n) {}

  // "/stagecoach.v1.Stage/Load"
  std::string_view path() const { return Find(":path").value_or(""); }
  // The first value of `key`, which is in lower case.
  std::optional<std::string_view> Find(std::string_view key) const;

 private:
  const grpc_metadata* const metadata_;
  const size_t n_;
};

// PEM texts. Clients must have a certificate of `ca` where that is given.
struct TlsIdentity {
  std::string cert_chain, key, ca;
};

// Does not block; from any thread. Not OK: the call ends with that status.
using AdmitCall = std::function<absl::Status(const CallHead&)>;

// For ServerBuilder::AddListeningPort; without `tls` in plain HTTP/2.
std::shared_ptr<grpc::ServerCredentials> GatedCredentials(const std::optional<TlsIdentity>& tls,
                                                          AdmitCall admit);

}  // namespace stagecoach
