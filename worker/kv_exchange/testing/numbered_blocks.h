// For tests: KV blocks whose name and contents follow from a number.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/op_args.h"
#include "worker/kv_exchange/kv_blocks.h"
#include "worker/kv_exchange/kv_pool.h"

namespace stagecoach::worker {

// Two layers of one stage, of different sizes: a block has 128 bytes.
inline std::vector<KvPart> TwoParts(int32_t first_layer = 3) {
  return {{.layer = first_layer, .kv_group = 0, .bytes = 96},
          {.layer = first_layer + 1, .kv_group = 1, .bytes = 32}};
}

inline kernels::Buffer HostBytes(size_t n) {
  return {.data = std::shared_ptr<unsigned char[]>(new unsigned char[n]), .bytes = n};
}

inline KvBlockName BlockName(int i) {
  KvBlockName name;
  name.key.fill(static_cast<uint8_t>(i));
  name.tokens.fill(100 + i);
  return name;
}

inline unsigned char BlockByte(int i, size_t part) {
  return static_cast<unsigned char>(7 * i + 3 * static_cast<int>(part));
}

// Number `i`.
inline void FillBlock(const KvPool& pool, const KvPool::Place& place, int i) {
  for (size_t p = 0; p < pool.parts().size(); ++p) {
    const auto to = pool.bytes(place, p);
    std::memset(to.data(), BlockByte(i, p), to.size());
  }
}

inline void CheckBlock(const KvPool& pool, const KvPool::Place& place, int i) {
  for (size_t p = 0; p < pool.parts().size(); ++p) {
    for (const unsigned char byte : pool.bytes(place, p)) REQUIRE(byte == BlockByte(i, p));
  }
}

}  // namespace stagecoach::worker
