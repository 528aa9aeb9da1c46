// The values of a store, counted. Nothing in a value or its key names the model. Values of one
// model have the same size, so the size is what groups them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "worker/kv_store/kv_store_admin.h"

namespace stagecoach::cli::kv {

struct Total {
  uint64_t n_values = 0;
  uint64_t bytes = 0;

  void Add(const worker::StoredKv& value) {
    n_values += 1;
    bytes += value.bytes;
  }
};

struct Group {
  uint64_t value_bytes = 0;  // of each
  std::set<uint32_t> layers;
  uint64_t n_blocks = 0;
  uint64_t n_whole = 0;  // blocks with all of these layers; the others are of no use
  Total total;
  std::optional<std::chrono::seconds> newest, oldest;  // ages; absent: the store does not know
};

class Groups {
 public:
  void Add(std::span<const worker::StoredKv> values);
  // The largest one first.
  std::vector<Group> Get() const;
  Total total() const;
  uint64_t n_blocks() const;

 private:
  using Block = std::array<uint8_t, 16>;
  struct Counted {
    Group group;                         // but for the blocks
    std::map<Block, uint32_t> n_layers;  // of each block
  };
  std::map<uint64_t, Counted> by_size_;
};

}  // namespace stagecoach::cli::kv
