#include "common/rpc/call_gate.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/grpcpp.h>

#include <utility>

namespace stagecoach {
namespace {

std::string_view View(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// grpc::AuthMetadataProcessor works with TLS only; the processor of gRPC's C API works without it
// too.
void Ask(void* gate, grpc_auth_context*, const grpc_metadata* metadata, size_t n,
         grpc_process_auth_metadata_done_cb done, void* user_data) {
  const absl::Status status = (*static_cast<const AdmitCall*>(gate))(CallHead(metadata, n));
  done(user_data, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(status.code()),
       status.ok() ? nullptr : std::string(status.message()).c_str());
}

grpc_server_credentials* MakeCredentials(const std::optional<TlsIdentity>& tls) {
  if (!tls) return grpc_insecure_server_credentials_create();
  grpc_ssl_pem_key_cert_pair pair{tls->key.c_str(), tls->cert_chain.c_str()};
  return grpc_ssl_server_credentials_create_ex(
      tls->ca.empty() ? nullptr : tls->ca.c_str(), &pair, 1,
      tls->ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                      : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
      nullptr);
}

class Gate final : public grpc::ServerCredentials {
 public:
  Gate(const std::optional<TlsIdentity>& tls, AdmitCall admit)
      : credentials_(MakeCredentials(tls)) {
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_, {.process = Ask,
                       .destroy = [](void* gate) { delete static_cast<AdmitCall*>(gate); },
                       .state = new AdmitCall(std::move(admit))});
  }
  ~Gate() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

std::optional<std::string_view> CallHead::Find(std::string_view key) const {
  for (size_t i = 0; i < n_; ++i) {
    if (View(metadata_[i].key) == key) return View(metadata_[i].value);
  }
  return std::nullopt;
}

std::shared_ptr<grpc::ServerCredentials> GatedCredentials(const std::optional<TlsIdentity>& tls,
                                                          AdmitCall admit) {
  return std::make_shared<Gate>(tls, std::move(admit));
}

}  // namespace stagecoach
