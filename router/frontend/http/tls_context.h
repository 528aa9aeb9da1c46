// The server's certificate.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach::router::http {

// TLS 1.2 and later. INVALID_ARGUMENT names the file that cannot be used: PEM, the certificate's
// whole chain, and its key without a password.
absl::StatusOr<std::unique_ptr<boost::asio::ssl::context>> ReadTlsContext(
    const std::string& cert_path, const std::string& key_path);

}  // namespace stagecoach::router::http
