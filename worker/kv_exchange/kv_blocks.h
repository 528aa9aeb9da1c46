// KV blocks of a stage in host memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/kv_block.h"
#include "worker/kv_exchange/kv_memory.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

// A block, whatever stage holds which of its layers.
struct KvBlockName {
  std::array<uint8_t, 16> key{};  // KvKey::block
  std::array<int32_t, kKvBlockTokens> tokens{};
};

// What a stage holds of a block.
inline uint64_t KvBlockBytes(const std::vector<KvPart>& parts) {
  uint64_t bytes = 0;
  for (const KvPart& part : parts) bytes += part.bytes;
  return bytes;
}

// Memory with the stage's parts of some blocks. The parts of a layer are consecutive: [parts,
// blocks].
class KvBlocks {
 public:
  KvBlocks() = default;
  // The parts outlive this.
  KvBlocks(KvMemory::Run run, const std::vector<KvPart>* parts)
      : run_(std::move(run)), parts_(parts) {}

  uint32_t n_blocks() const { return run_.n_blocks(); }
  unsigned char* at(size_t part, uint32_t block) const {
    uint64_t before = 0;  // bytes of a block
    for (size_t i = 0; i < part; ++i) before += (*parts_)[i].bytes;
    return run_.data() + before * n_blocks() + (*parts_)[part].bytes * block;
  }
  std::span<unsigned char> bytes(size_t part, uint32_t block) const {
    return {at(part, block), (*parts_)[part].bytes};
  }

 private:
  KvMemory::Run run_;
  const std::vector<KvPart>* parts_ = nullptr;
};

}  // namespace stagecoach::worker
