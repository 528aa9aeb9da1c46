#include "worker/service/lease_table.h"

#include <fmt/format.h>

#include <string>

#include "common/status.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kMaxHolderBytes = 512;

absl::Status CheckForm(const v1::Lease& lease) {
  if (lease.epoch() == 0 || lease.holder().empty() || lease.holder().size() > kMaxHolderBytes) {
    return absl::InvalidArgumentError(
        "the call has no lease: run the same version on router and workers");
  }
  return absl::OkStatus();
}

}  // namespace

std::string LeaseTable::Name(const v1::Lease& lease) {
  return fmt::format("router {} of epoch {}", lease.holder(), lease.epoch());
}

absl::Status LeaseTable::Take(const v1::Lease& lease) {
  SC_RETURN_IF_ERROR(CheckForm(lease));
  const bool own = lease.holder() == lease_.holder() && lease.epoch() >= lease_.epoch();
  if (!own && lease.epoch() <= lease_.epoch()) {
    return absl::FailedPreconditionError(
        fmt::format("{} has the lease of this worker; {} is older", Name(lease_), Name(lease)));
  }
  lease_ = lease;
  return absl::OkStatus();
}

void LeaseTable::Renew(const v1::Lease& lease) { lease_ = lease; }

absl::Status LeaseTable::Check(const v1::Lease& lease, EpochRule rule) const {
  SC_RETURN_IF_ERROR(CheckForm(lease));
  if (lease_.epoch() == 0) {
    return absl::FailedPreconditionError(
        "no router has the lease of this worker (call Load first)");
  }
  if (lease.holder() != lease_.holder()) {
    return absl::FailedPreconditionError(
        fmt::format("{} has the lease of this worker, not {}", Name(lease_), Name(lease)));
  }
  const bool rises = rule == kEpochMayRise && lease.epoch() > lease_.epoch();
  if (lease.epoch() != lease_.epoch() && !rises) {
    return absl::FailedPreconditionError(fmt::format(
        "a call of epoch {}, but this worker is in epoch {}", lease.epoch(), lease_.epoch()));
  }
  return absl::OkStatus();
}

absl::Status LeaseTable::StillHeld(const v1::Lease& lease) const {
  if (lease.holder() == lease_.holder() && lease.epoch() == lease_.epoch()) {
    return absl::OkStatus();
  }
  return absl::AbortedError(fmt::format("{} has taken over this worker", Name(lease_)));
}

}  // namespace stagecoach::worker
