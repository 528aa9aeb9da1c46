#include "router/access/tls_files.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>

#include "common/status.h"
#include "router/access/read_text.h"

namespace stagecoach::router {
namespace {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;

// Without this, OpenSSL asks for a password on the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

Bio Memory(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// OpenSSL's last error; clears its error queue.
std::string Reason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "no reason given" : reason;
}

bool UseChain(SSL_CTX* context, const std::string& pem) {
  const Bio bio = Memory(pem);
  const Certificate own(PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassword, nullptr));
  if (own == nullptr || SSL_CTX_use_certificate(context, own.get()) != 1) return false;
  while (true) {
    const Certificate next(PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr));
    if (next == nullptr) break;
    if (SSL_CTX_add1_chain_cert(context, next.get()) != 1) return false;
  }
  // At the end of the file, OpenSSL reports that no start line follows.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (at_end) ERR_clear_error();
  return at_end;
}

}  // namespace

absl::StatusOr<TlsFiles> TlsFiles::Read(const std::string& cert_path, const std::string& key_path) {
  TlsFiles files;
  SC_ASSIGN_OR_RETURN(files.cert_chain_pem, ReadText("--tls-cert", cert_path));
  SC_ASSIGN_OR_RETURN(files.key_pem, ReadText("--tls-key", key_path));
  ERR_clear_error();
  const Context context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return absl::InternalError("OpenSSL: " + Reason());
  if (!UseChain(context.get(), files.cert_chain_pem)) {
    return absl::InvalidArgumentError(
        fmt::format("--tls-cert {}: is not a PEM certificate chain: {}", cert_path, Reason()));
  }
  const PrivateKey key(
      PEM_read_bio_PrivateKey(Memory(files.key_pem).get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return absl::InvalidArgumentError(fmt::format(
        "--tls-key {}: is not a PEM private key without a password: {}", key_path, Reason()));
  }
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    return absl::InvalidArgumentError(
        fmt::format("--tls-key {}: does not match the certificate in {} (--tls-cert): {}", key_path,
                    cert_path, Reason()));
  }
  return files;
}

}  // namespace stagecoach::router
