// The KV store of StrictStages: remembers what blocks hold, by key. Stages of several schedulers
// may share one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "router/scheduler/prefix_tree.h"

namespace stagecoach::router {

struct FakeStoredBlock {
  std::vector<int32_t> tokens;
  uint32_t index = 0;  // in a sequence's table
  // By KV group, per position: hash of all tokens up to and including it.
  std::vector<std::array<uint64_t, kBlockTokens>> hashes;

  bool operator==(const FakeStoredBlock&) const = default;
};

// Not thread-safe.
using FakeKvStore = std::map<std::string, FakeStoredBlock>;  // by key

}  // namespace stagecoach::router
