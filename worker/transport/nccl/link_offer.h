// What neighbours need to meet: NCCL's unique ids, as opaque bytes that pass through the router.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/transport/nccl/nccl_api.h"

namespace stagecoach::worker {

struct LinkTerms {
  uint64_t epoch = 0;
  int nccl_version = 0;
  std::string host;  // of the stage that made the ids
  std::vector<NcclUniqueId> ids;
};

std::string EncodeLinkTerms(const LinkTerms& terms);

// INVALID_ARGUMENT for other bytes; FAILED_PRECONDITION if the stages' versions do not fit, or the
// terms are of another epoch. n_ids: wanted.
absl::StatusOr<LinkTerms> DecodeLinkTerms(std::string_view bytes, uint64_t epoch, int nccl_version,
                                          size_t n_ids);

}  // namespace stagecoach::worker
