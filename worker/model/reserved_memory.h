// What a stage leaves free on a device with memory of its own, beside what it has taken when the KV
// cache is sized.
#pragma once

#include <cstdint>

namespace stagecoach::worker {

// A stage's communicators: metadata and hidden states to each neighbour, tokens at both ends.
inline int32_t NLinks(int32_t stage, int32_t n_stages) {
  if (n_stages < 2) return 0;
  return stage == 0 || stage + 1 == n_stages ? 3 : 4;
}

// Recorded steps (14 to 24 MiB were seen for 23 to 47 of them), what the driver allocates as it
// goes, and links.
inline uint64_t ReservedBytes(int32_t n_links) {
  constexpr uint64_t kOfSteps = uint64_t{64} << 20, kOfLink = uint64_t{64} << 20;
  return kOfSteps + static_cast<uint64_t>(n_links) * kOfLink;
}

}  // namespace stagecoach::worker
