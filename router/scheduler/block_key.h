// The names of KV blocks in a store that several servers share (--kv-store).
//
// A key stands for the tokens of a block, all tokens before it, the salt of its sequence, and the
// scope: whatever else decides the block's bits. Each key is a hash of its parent's key, so equal
// keys mean equal prefixes, except with the chance of a collision of 128 bits of SHA-256.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/kv_block.h"

namespace stagecoach::router {

using BlockKey = std::array<uint8_t, 16>;

// The parent of a sequence's first block. `scope` names model, numerics, dtypes and adapter. Blocks
// are shared only among sequences with the same salt.
BlockKey RootBlockKey(std::string_view scope, std::string_view salt);

// The key of a block with these kKvBlockTokens tokens. REQUIRES: as many tokens.
BlockKey ChildBlockKey(const BlockKey& parent, std::span<const int32_t> tokens);

// Stands for a tenant, so that a store with quotas need not know names: a hash, and 0 for the
// common tenant of callers without keys.
uint64_t KvOwner(std::string_view tenant);

inline std::string BytesOf(const BlockKey& key) { return {key.begin(), key.end()}; }

}  // namespace stagecoach::router
