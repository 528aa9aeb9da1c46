// Host memory that the device copies KV blocks to and from, in places of one block each.
//
// A place is free, held, or kept. Whoever holds a place may read it, and nobody overwrites it. Kept
// places have blocks that Find finds. When nobody holds them, they give way to new blocks: first
// the one that was used longest ago. A block is of use only with all blocks before it, so the last
// one of a sequence is released first.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/mutex.h"
#include "kernels/op_args.h"
#include "worker/kv_exchange/kv_blocks.h"

namespace stagecoach::worker {

// Thread-safe.
class KvPool {
 public:
  // Holds a place until it is destroyed. The pool outlives it.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept { *this = std::move(other); }
    Place& operator=(Place&& other) noexcept;
    ~Place() { Release(); }

    bool valid() const { return pool_ != nullptr; }
    uint32_t index() const { return index_; }

   private:
    friend class KvPool;
    Place(KvPool* pool, uint32_t index) : pool_(pool), index_(index) {}
    void Release();

    KvPool* pool_ = nullptr;
    uint32_t index_ = 0;
  };

  // Releases the last one first, so that it gives way first.
  class Places {
   public:
    Places() = default;
    Places(Places&&) = default;
    Places& operator=(Places&& other) noexcept;
    ~Places() { Trim(0); }

    bool empty() const { return all_.empty(); }
    size_t size() const { return all_.size(); }
    const Place& operator[](size_t i) const { return all_[i]; }
    void Add(Place place) { all_.push_back(std::move(place)); }
    // Releases all but the first n, if there are more.
    void Trim(size_t n) {
      while (all_.size() > n) all_.pop_back();
    }
    // Not valid in this from now on.
    Place TakeOut(size_t i) { return std::move(all_[i]); }

   private:
    std::vector<Place> all_;
  };

  // memory: for at least one block. parts: what a block has.
  KvPool(kernels::Buffer memory, std::vector<KvPart> parts);

  const std::vector<KvPart>& parts() const { return parts_; }
  uint64_t place_bytes() const { return place_bytes_; }
  // Address of a part of place 0. The parts of a place follow each other.
  unsigned char* at(size_t part) const { return memory_.As<unsigned char>() + offsets_[part]; }
  std::span<unsigned char> bytes(const Place& place, size_t part) const {
    return {at(part) + place.index() * place_bytes_, parts_[part].bytes};
  }

  // Up to n places to be overwritten: fewer if the others are held.
  Places Take(uint32_t n);
  // The place with this block; it counts as used when it is released. Not valid: there is none.
  Place Find(const KvBlockName& name);
  bool Has(const KvBlockName& name) const;
  // The contents of the place are complete: it is kept under this name, unless another one is.
  void Keep(const Place& place, const KvBlockName& name);

  uint32_t n_total() const { return static_cast<uint32_t>(entries_.size()); }
  uint32_t n_kept() const;

 private:
  using Key = std::array<uint8_t, 16>;
  struct Entry {
    uint32_t n_holders = 0;
    bool kept = false;
    KvBlockName name;                    // if kept
    std::list<uint32_t>::iterator idle;  // if kept without holders
  };
  void Release(uint32_t index);
  // Null: there is none with these tokens.
  const uint32_t* Lookup(const KvBlockName& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const kernels::Buffer memory_;
  const std::vector<KvPart> parts_;
  const uint64_t place_bytes_;
  std::vector<uint64_t> offsets_;  // by part
  mutable Mutex mutex_;
  std::vector<Entry> entries_;  // by place; guarded by mutex_, but for its size
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mutex_);
  std::list<uint32_t> idle_
      ABSL_GUARDED_BY(mutex_);  // kept places without holders, used last first
  absl::flat_hash_map<Key, uint32_t> by_key_ ABSL_GUARDED_BY(mutex_);  // kept places
};

}  // namespace stagecoach::worker
