#include "router/access/access.h"

#include <utility>

#include "common/status.h"

namespace stagecoach::router {

absl::StatusOr<std::shared_ptr<Access>> Access::Read(const AccessFiles& files) {
  auto access = std::make_shared<Access>();
  if (!files.api_keys.empty()) {
    SC_ASSIGN_OR_RETURN(ApiKeys keys, ApiKeys::Read(files.api_keys));
    access->keys_.emplace(std::move(keys));
  }
  if (files.tls_cert.empty() != files.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key must be given together");
  }
  if (!files.tls_cert.empty()) {
    SC_ASSIGN_OR_RETURN(access->tls_, TlsFiles::Read(files.tls_cert, files.tls_key));
  }
  return access;
}

absl::StatusOr<Caller> Access::Admit(std::string_view authorization, Kind kind) {
  if (!keys_) return Caller{};
  return kind == Kind::kWork ? keys_->TakeRequest(authorization, ApiKeys::Clock::now())
                             : keys_->Find(authorization);
}

}  // namespace stagecoach::router
