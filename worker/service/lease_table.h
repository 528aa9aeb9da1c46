// Decides which router a worker obeys: the one that holds its lease.
#pragma once

#include "absl/status/status.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::worker {

// Not thread-safe. A lease without an epoch or a holder is always INVALID_ARGUMENT. All other
// errors are FAILED_PRECONDITION and name the router that holds the lease, except for StillHeld.
class LeaseTable {
 public:
  // The last lease taken. Its epoch is 0 if there has been none.
  const v1::Lease& lease() const { return lease_; }
  // For status messages: "router HOST/PID/RANDOM of epoch 17".
  static std::string Name(const v1::Lease& lease);

  // Used by Load. Succeeds if no router holds the lease, if the epoch is higher, or for the holder
  // itself.
  absl::Status Take(const v1::Lease& lease);
  // Used by all other calls. The holder may raise the epoch with OfferLinks and Join.
  enum EpochRule { kSameEpoch, kEpochMayRise };
  absl::Status Check(const v1::Lease& lease, EpochRule rule = kSameEpoch) const;
  // REQUIRES: Check(lease, kEpochMayRise).
  void Renew(const v1::Lease& lease);
  // ABORTED if another router holds the lease or another load has changed the epoch. The message
  // names the holder.
  absl::Status StillHeld(const v1::Lease& lease) const;

 private:
  v1::Lease lease_;
};

}  // namespace stagecoach::worker
