// Access control (API keys) and the server's TLS certificate, the same for all protocols.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/flags/front_end_flags.h"
#include "router/access/api_keys.h"
#include "router/access/caller.h"
#include "router/access/tls_files.h"

namespace stagecoach::router {

// Thread-safe.
class Access {
 public:
  // kWork calls count against the key's rate limit; kLook calls do not.
  enum class Kind { kWork, kLook };

  // INVALID_ARGUMENT names the file, or the line in it, that is invalid.
  static absl::StatusOr<std::shared_ptr<Access>> Read(const AccessFiles& files);
  Access() = default;  // no keys, no TLS

  bool has_keys() const { return keys_.has_value(); }
  const TlsFiles* tls() const { return tls_ ? &*tls_ : nullptr; }  // null: none

  // `authorization`: "Bearer KEY". UNAUTHENTICATED: no key, or an unknown one. RESOURCE_EXHAUSTED:
  // the key's rate is used up (kWork only).
  absl::StatusOr<Caller> Admit(std::string_view authorization, Kind kind);

 private:
  std::optional<ApiKeys> keys_;
  std::optional<TlsFiles> tls_;
};

}  // namespace stagecoach::router
