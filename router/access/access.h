// Who may come in, and the certificate by which clients know the server: the same for all
// protocols.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "router/access/api_keys.h"
#include "router/access/caller.h"
#include "router/access/tls_files.h"

namespace stagecoach::router {

struct AccessFiles {
  std::string api_keys;  // empty: everyone may come in
  std::string tls_cert;  // PEM; empty, as is the key: no TLS
  std::string tls_key;
};

// Thread-safe.
class Access {
 public:
  // Whether a call is work, and so takes from its key's rate.
  enum class Kind { kWork, kLook };

  // INVALID_ARGUMENT names the file, or the line of it, that cannot be used.
  static absl::StatusOr<std::shared_ptr<Access>> Read(const AccessFiles& files);
  Access() = default;  // everyone, without TLS

  bool has_keys() const { return keys_.has_value(); }
  const TlsFiles* tls() const { return tls_ ? &*tls_ : nullptr; }  // null: none

  // `authorization`: "Bearer KEY". UNAUTHENTICATED; RESOURCE_EXHAUSTED for work when the key's rate
  // is used up.
  absl::StatusOr<Caller> Admit(std::string_view authorization, Kind kind);

 private:
  std::optional<ApiKeys> keys_;
  std::optional<TlsFiles> tls_;
};

}  // namespace stagecoach::router
