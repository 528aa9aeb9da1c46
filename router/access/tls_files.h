// The server's certificate and its key.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace stagecoach::router {

struct TlsFiles {
  // Reads the whole certificate chain and its key without a password, both in PEM. INVALID_ARGUMENT
  // names the invalid file.
  static absl::StatusOr<TlsFiles> Read(const std::string& cert_path, const std::string& key_path);

  std::string cert_chain_pem;
  std::string key_pem;
};

}  // namespace stagecoach::router
