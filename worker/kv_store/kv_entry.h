// The encoding of a value in a store: one layer's keys and values of one KV block, and what they
// belong to. A store may be shared, too small, damaged or filled by another version, so a reader
// believes only what it has checked.
//
// Little-endian. A header, then the payload, whose layout is the writer's affair: two entries with
// the same key have the same layout.
//
//   offset  type     field
//        0  u32      magic          "SCKV"
//        4  u32      version        1
//        8  u32      header_bytes   112
//       12  u32      n_tokens       16
//       16  u8[16]   block          KvKey::block
//       32  i32[16]  tokens         of the block
//       96  u64      payload_bytes
//      104  u32      layer          KvKey::layer
//      108  u32      checksum       low half of XXH3_64bits of the payload, seeded by that of
//                                the bytes before this field
//      112  u8[]     payload
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/kv_block.h"
#include "worker/kv_store/kv_key.h"

namespace stagecoach::worker {

inline constexpr size_t kKvEntryHeaderBytes = 112;

using KvBlockTokens = std::span<const int32_t, kKvBlockTokens>;

std::string EncodeKvEntry(const KvKey& key, KvBlockTokens tokens, std::string_view payload);

// Returns the payload, a part of `entry` that begins kKvEntryHeaderBytes after its start. `entry`
// may be of any bytes and any alignment. DATA_LOSS: not a whole entry, or a damaged one.
// FAILED_PRECONDITION: an entry of another version, or not of this key, layer or these tokens.
absl::StatusOr<std::string_view> DecodeKvEntry(std::string_view entry, const KvKey& key,
                                               KvBlockTokens tokens);

// The key that a whole entry of this version belongs to, whatever its tokens are. Errors are those
// of DecodeKvEntry.
absl::StatusOr<KvKey> KeyOfKvEntry(std::string_view entry);

}  // namespace stagecoach::worker
