// The server's certificate and its key.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace stagecoach::router {

struct TlsFiles {
  // INVALID_ARGUMENT names the file that cannot be used: the certificate's whole chain, and its key
  // without a password, PEM both.
  static absl::StatusOr<TlsFiles> Read(const std::string& cert_path, const std::string& key_path);

  std::string cert_chain_pem;
  std::string key_pem;
};

}  // namespace stagecoach::router
