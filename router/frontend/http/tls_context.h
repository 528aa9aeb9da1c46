// The server's TLS settings.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "absl/status/statusor.h"
#include "router/access/tls_files.h"

namespace stagecoach::router::http {

// TLS 1.2 and later.
absl::StatusOr<std::unique_ptr<boost::asio::ssl::context>> MakeTlsContext(const TlsFiles& files);

}  // namespace stagecoach::router::http
