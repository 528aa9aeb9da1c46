// The KV store of StrictStages: remembers what blocks hold, by key. Stages of several schedulers
// may share one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "router/scheduler/prefix_tree.h"

namespace stagecoach::router {

struct FakeStoredBlock {
  std::vector<int32_t> tokens;
  uint32_t index = 0;  // in a sequence's table
  // By KV group, per position: hash of all tokens up to and including it. Empty: only the state is
  // stored.
  std::vector<std::array<uint64_t, kBlockTokens>> hashes;
  // The recurrent state after the block: hash of all tokens that it has seen.
  std::optional<uint64_t> state;
};

// Not thread-safe.
using FakeKvStore = std::map<std::string, FakeStoredBlock>;  // by key

}  // namespace stagecoach::router
