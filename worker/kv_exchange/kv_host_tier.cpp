#include "worker/kv_exchange/kv_host_tier.h"

#include <cstring>

#include "common/check.h"

namespace stagecoach::worker {

KvHostTier::KvHostTier(uint64_t bytes, const std::vector<KvPart>* parts)
    : parts_(*parts),
      block_bytes_(KvBlockBytes(*parts)),
      most_blocks_(bytes / block_bytes_),
      memory_(std::make_unique_for_overwrite<unsigned char[]>(most_blocks_ * block_bytes_)) {
  SC_CHECK(most_blocks_ > 0);
}

void KvHostTier::Put(const KvBlockName& name, const KvBlocks& from, uint32_t block) {
  const MutexLock lock(mutex_);
  if (const auto found = by_key_.find(name.key); found != by_key_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
  } else if (entries_.size() < most_blocks_) {
    entries_.push_front({.name = name, .place = entries_.size()});
  } else {
    by_key_.erase(entries_.back().name.key);
    entries_.splice(entries_.begin(), entries_, std::prev(entries_.end()));
  }
  Entry& entry = entries_.front();
  entry.name = name;
  by_key_[name.key] = entries_.begin();
  unsigned char* to = At(entry);
  for (size_t part = 0; part < parts_.size(); ++part) {
    std::memcpy(to, from.at(part, block), parts_[part].bytes);
    to += parts_[part].bytes;
  }
}

bool KvHostTier::Get(const KvBlockName& name, const KvBlocks& to, uint32_t block) const {
  const MutexLock lock(mutex_);
  const auto found = by_key_.find(name.key);
  if (found == by_key_.end() || found->second->name.tokens != name.tokens) return false;
  const unsigned char* from = At(*found->second);
  for (size_t part = 0; part < parts_.size(); ++part) {
    std::memcpy(to.at(part, block), from, parts_[part].bytes);
    from += parts_[part].bytes;
  }
  return true;
}

void KvHostTier::Touch(const KvBlockName& name) {
  const MutexLock lock(mutex_);
  const auto found = by_key_.find(name.key);
  if (found != by_key_.end()) entries_.splice(entries_.begin(), entries_, found->second);
}

uint64_t KvHostTier::n_blocks() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace stagecoach::worker
