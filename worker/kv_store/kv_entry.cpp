#include "worker/kv_store/kv_entry.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL  // nothing to link
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "common/status.h"

namespace stagecoach::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "the header is copied as it is");

constexpr uint32_t kKvEntryMagic = 0x564B4353;  // "SCKV"
constexpr uint32_t kKvEntryVersion = 1;

struct KvEntryHeader {
  uint32_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint32_t n_tokens;
  std::array<uint8_t, 16> block;
  std::array<int32_t, kKvBlockTokens> tokens;
  uint64_t payload_bytes;
  uint32_t layer;
  uint32_t checksum;
};
static_assert(sizeof(KvEntryHeader) == kKvEntryHeaderBytes &&
              offsetof(KvEntryHeader, checksum) == kKvEntryHeaderBytes - sizeof(uint32_t) &&
              std::is_trivially_copyable_v<KvEntryHeader>);

uint32_t Checksum(const KvEntryHeader& header, std::string_view payload) {
  const XXH64_hash_t begun = XXH3_64bits(&header, offsetof(KvEntryHeader, checksum));
  return static_cast<uint32_t>(XXH3_64bits_withSeed(payload.data(), payload.size(), begun));
}

// The header of a whole entry of this version.
absl::StatusOr<KvEntryHeader> CheckedHeader(std::string_view entry) {
  KvEntryHeader header;
  if (entry.size() < sizeof(header)) {
    return absl::DataLossError(fmt::format("truncated: {} bytes", entry.size()));
  }
  std::memcpy(&header, entry.data(), sizeof(header));
  const std::string_view payload = entry.substr(sizeof(header));
  if (header.magic != kKvEntryMagic) return absl::DataLossError("corrupt: no KV entry");
  if (header.version != kKvEntryVersion) {
    return absl::FailedPreconditionError(
        fmt::format("version {}; this is version {}", header.version, kKvEntryVersion));
  }
  if (header.payload_bytes != payload.size()) {
    return absl::DataLossError(fmt::format("truncated: a payload of {} bytes; the header says {}",
                                           payload.size(), header.payload_bytes));
  }
  if (header.header_bytes != kKvEntryHeaderBytes || header.n_tokens != kKvBlockTokens ||
      header.checksum != Checksum(header, payload)) {
    return absl::DataLossError("corrupt: its checksum or its sizes are wrong");
  }
  return header;
}

}  // namespace

std::string EncodeKvEntry(const KvKey& key, KvBlockTokens tokens, std::string_view payload) {
  KvEntryHeader header{.magic = kKvEntryMagic,
                       .version = kKvEntryVersion,
                       .header_bytes = kKvEntryHeaderBytes,
                       .n_tokens = kKvBlockTokens,
                       .block = key.block,
                       .payload_bytes = payload.size(),
                       .layer = key.layer};
  std::ranges::copy(tokens, header.tokens.begin());
  header.checksum = Checksum(header, payload);
  std::string entry;
  entry.reserve(sizeof(header) + payload.size());
  entry.append(reinterpret_cast<const char*>(&header), sizeof(header));
  entry.append(payload);
  return entry;
}

absl::StatusOr<std::string_view> DecodeKvEntry(std::string_view entry, const KvKey& key,
                                               KvBlockTokens tokens) {
  SC_ASSIGN_OR_RETURN(const KvEntryHeader header, CheckedHeader(entry));
  if (header.block != key.block) return absl::FailedPreconditionError("a foreign key's entry");
  if (header.layer != key.layer) {
    return absl::FailedPreconditionError(
        fmt::format("another layer's entry: {} instead of {}", header.layer, key.layer));
  }
  if (!std::ranges::equal(header.tokens, tokens)) {
    return absl::FailedPreconditionError("an entry of other tokens with the same key");
  }
  return entry.substr(sizeof(header));
}

absl::StatusOr<KvKey> KeyOfKvEntry(std::string_view entry) {
  SC_ASSIGN_OR_RETURN(const KvEntryHeader header, CheckedHeader(entry));
  return KvKey{.block = header.block, .layer = header.layer};
}

}  // namespace stagecoach::worker
