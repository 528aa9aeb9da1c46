#include "router/frontend/http/tls_context.h"

#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>

namespace stagecoach::router::http {
namespace {

namespace ssl = boost::asio::ssl;

// Tells clients that prefer HTTP/2 that this server speaks HTTP/1.1 (ALPN).
int SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* offered, unsigned int offered_size, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* selected = nullptr;
  const int result = SSL_select_next_proto(&selected, out_size, kHttp11, sizeof(kHttp11) - 1,
                                           offered, offered_size);
  *out = selected;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ssl::context>> MakeTlsContext(const TlsFiles& files) {
  auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                       ssl::context::no_tlsv1_1 | ssl::context::single_dh_use);
  // A client could request renegotiation again and again, which costs CPU time.
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context->native_handle(), SelectProtocol, nullptr);
  boost::system::error_code error;
  context->use_certificate_chain(boost::asio::buffer(files.cert_chain_pem), error);
  if (!error) {
    context->use_private_key(boost::asio::buffer(files.key_pem), ssl::context::pem, error);
  }
  if (error) return absl::InternalError("the certificate: " + error.message());
  return context;
}

}  // namespace stagecoach::router::http
