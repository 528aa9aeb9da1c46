#include "router/scheduler/block_key.h"

#include <openssl/sha.h>

#include <algorithm>
#include <string>

#include "common/check.h"

namespace stagecoach::router {
namespace {

template <size_t kBytes>
void PutLittleEndian(uint64_t value, uint8_t* out) {
  for (size_t i = 0; i < kBytes; ++i) out[i] = static_cast<uint8_t>(value >> (8 * i));
}

BlockKey FirstOfSha256(const uint8_t* bytes, size_t n_bytes) {
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(bytes, n_bytes, digest.data());
  BlockKey key;
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

}  // namespace

BlockKey RootBlockKey(std::string_view scope, std::string_view salt) {
  std::string bytes;
  // With their lengths, two pairs of texts never give the same bytes.
  for (const std::string_view text : {scope, salt}) {
    std::array<uint8_t, 8> length;
    PutLittleEndian<8>(text.size(), length.data());
    bytes.append(length.begin(), length.end());
    bytes.append(text);
  }
  return FirstOfSha256(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

BlockKey ChildBlockKey(const BlockKey& parent, std::span<const int32_t> tokens) {
  constexpr size_t kTokenBytes = sizeof(int32_t);
  SC_CHECK(tokens.size() == kKvBlockTokens);
  std::array<uint8_t, sizeof(BlockKey) + kKvBlockTokens * kTokenBytes> bytes;
  uint8_t* out = std::copy(parent.begin(), parent.end(), bytes.begin());
  for (const int32_t token : tokens) {
    PutLittleEndian<kTokenBytes>(static_cast<uint32_t>(token), out);
    out += kTokenBytes;
  }
  return FirstOfSha256(bytes.data(), bytes.size());
}

uint64_t KvOwner(std::string_view tenant) {
  if (tenant.empty()) return 0;
  const BlockKey key =
      FirstOfSha256(reinterpret_cast<const uint8_t*>(tenant.data()), tenant.size());
  uint64_t owner = 0;
  for (size_t i = 0; i < sizeof(owner); ++i) owner = owner << 8 | key[i];
  return owner;
}

}  // namespace stagecoach::router
