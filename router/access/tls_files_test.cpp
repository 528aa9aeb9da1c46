#include "router/access/tls_files.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>

namespace stagecoach::router {
namespace {

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

// A self-signed certificate and its key.
struct Pair {
  Pair() {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* cert = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_sign(cert, key, EVP_sha256());
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, cert);
    cert_pem = Text(bio);
    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
    key_pem = Text(bio);
    bio = BIO_new(BIO_s_mem());
    const unsigned char password[] = "secret";
    PEM_write_bio_PrivateKey(bio, key, EVP_aes_128_cbc(), password, 6, nullptr, nullptr);
    locked_key_pem = Text(bio);
    X509_free(cert);
    EVP_PKEY_free(key);
  }

  std::string cert_pem, key_pem, locked_key_pem;
};

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tls_files_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = path_ / name;
    std::ofstream(path) << text;
    return path;
  }

 private:
  std::filesystem::path path_;
};

std::string Refusal(const Folder& folder, const std::string& cert, const std::string& key) {
  const auto files = TlsFiles::Read(folder.Write("cert", cert), folder.Write("key", key));
  REQUIRE(absl::IsInvalidArgument(files.status()));
  return std::string(files.status().message());
}

TEST_CASE("a certificate is read with its key and its chain") {
  const Folder folder;
  const Pair own, issuer;
  const std::string chain = own.cert_pem + issuer.cert_pem;
  const auto files = TlsFiles::Read(folder.Write("cert", chain), folder.Write("key", own.key_pem));
  REQUIRE(files.ok());
  CHECK(files->cert_chain_pem == chain);
  CHECK(files->key_pem == own.key_pem);
}

TEST_CASE("the error names files that do not match, and nothing asks for a password") {
  const Folder folder;
  const Pair one, other;
  CHECK(Refusal(folder, "{}", one.key_pem).starts_with("--tls-cert "));
  CHECK(Refusal(folder, "", one.key_pem).starts_with("--tls-cert "));
  CHECK(Refusal(folder, one.key_pem, one.key_pem).starts_with("--tls-cert "));
  const std::string torn = other.cert_pem.substr(0, other.cert_pem.size() / 2);
  CHECK(Refusal(folder, one.cert_pem + torn, one.key_pem).starts_with("--tls-cert "));
  CHECK(Refusal(folder, one.cert_pem, one.cert_pem).starts_with("--tls-key "));
  CHECK(Refusal(folder, one.cert_pem, one.locked_key_pem).starts_with("--tls-key "));
  const std::string mixed = Refusal(folder, one.cert_pem, other.key_pem);
  CHECK(mixed.starts_with("--tls-key "));
  CHECK(mixed.find("does not match the certificate") != std::string::npos);
  CHECK(absl::IsInvalidArgument(TlsFiles::Read("/no/cert", "/no/key").status()));
}

}  // namespace
}  // namespace stagecoach::router
