// Where a disk tier is and how large it may grow, as an operator writes it: DIR[:SIZE].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach::worker {

struct DiskTier {
  std::string path;
  uint64_t bytes = 0;  // of all workers together; 0: DefaultDiskBytes
};

// A colon in the last part of the path begins the size ("/mnt/kv:200GiB"). INVALID_ARGUMENT.
absl::StatusOr<DiskTier> ParseDiskTier(std::string_view text);

// Half of what is free in the folder, where files that are in it count as free. So it is the same
// after a restart. Creates the folder if it is missing.
absl::StatusOr<uint64_t> DefaultDiskBytes(const std::string& path);

}  // namespace stagecoach::worker
