// Which router a worker obeys: the one that has its lease.
#pragma once

#include "absl/status/status.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::worker {

// Not thread-safe. A lease without an epoch or a holder is INVALID_ARGUMENT everywhere; all other
// errors are FAILED_PRECONDITION and name the router that has the lease.
class LeaseTable {
 public:
  // The last lease taken; its epoch is 0 if there was none.
  const v1::Lease& lease() const { return lease_; }
  // For status messages: "router HOST/PID/RANDOM of epoch 17".
  static std::string Name(const v1::Lease& lease);

  // By Load. Free for all if nobody has had it, for a higher epoch, and for the holder itself.
  absl::Status Take(const v1::Lease& lease);
  // By all other calls. The holder may raise the epoch with OfferLinks and Join.
  enum EpochRule { kSameEpoch, kEpochMayRise };
  absl::Status Check(const v1::Lease& lease, EpochRule rule = kSameEpoch) const;
  // REQUIRES: Check(lease, kEpochMayRise).
  void Renew(const v1::Lease& lease);
  // ABORTED, which says who has it now, when the holder is another one or the epoch another load's.
  absl::Status StillHeld(const v1::Lease& lease) const;

 private:
  v1::Lease lease_;
};

}  // namespace stagecoach::worker
