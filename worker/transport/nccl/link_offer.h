// The data that neighbours need to connect: NCCL's unique ids, as opaque bytes passed through the
// router.
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

// INVALID_ARGUMENT for malformed bytes. FAILED_PRECONDITION if the stages' NCCL versions differ or
// the terms belong to another epoch. n_ids: the expected number.
absl::StatusOr<LinkTerms> DecodeLinkTerms(std::string_view bytes, uint64_t epoch, int nccl_version,
                                          size_t n_ids);

}  // namespace stagecoach::worker
