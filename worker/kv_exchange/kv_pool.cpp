#include "worker/kv_exchange/kv_pool.h"

#include "common/check.h"

namespace stagecoach::worker {

KvPool::Place& KvPool::Place::operator=(Place&& other) noexcept {
  if (this == &other) return *this;
  Release();
  pool_ = std::exchange(other.pool_, nullptr);
  index_ = other.index_;
  return *this;
}

void KvPool::Place::Release() {
  if (pool_ != nullptr) std::exchange(pool_, nullptr)->Release(index_);
}

KvPool::Places& KvPool::Places::operator=(Places&& other) noexcept {
  if (this == &other) return *this;
  Trim(0);
  all_ = std::move(other.all_);
  return *this;
}

KvPool::KvPool(kernels::Buffer memory, std::vector<KvPart> parts)
    : memory_(std::move(memory)),
      parts_(std::move(parts)),
      place_bytes_(KvBlockBytes(parts_)),
      entries_(memory_.bytes / place_bytes_) {
  SC_CHECK(!entries_.empty());
  uint64_t offset = 0;
  for (const KvPart& part : parts_) {
    offsets_.push_back(offset);
    offset += part.bytes;
  }
  for (uint32_t i = n_total(); i > 0; --i) free_.push_back(i - 1);
}

KvPool::Places KvPool::Take(uint32_t n) {
  Places places;
  const MutexLock lock(mutex_);
  while (places.size() < n) {
    if (free_.empty()) {
      if (idle_.empty()) break;
      free_.push_back(idle_.back());
      idle_.pop_back();
      Entry& evicted = entries_[free_.back()];
      by_key_.erase(evicted.name.key);
      evicted.kept = false;
    }
    entries_[free_.back()].n_holders = 1;
    places.Add(Place(this, free_.back()));
    free_.pop_back();
  }
  return places;
}

const uint32_t* KvPool::Lookup(const KvBlockName& name) const {
  const auto found = by_key_.find(name.key);
  if (found == by_key_.end() || entries_[found->second].name.tokens != name.tokens) return nullptr;
  return &found->second;
}

KvPool::Place KvPool::Find(const KvBlockName& name) {
  const MutexLock lock(mutex_);
  const uint32_t* const index = Lookup(name);
  if (index == nullptr) return {};
  Entry& entry = entries_[*index];
  if (entry.n_holders++ == 0) idle_.erase(entry.idle);
  return Place(this, *index);
}

bool KvPool::Has(const KvBlockName& name) const {
  const MutexLock lock(mutex_);
  return Lookup(name) != nullptr;
}

void KvPool::Keep(const Place& place, const KvBlockName& name) {
  const MutexLock lock(mutex_);
  Entry& entry = entries_[place.index()];
  SC_CHECK(entry.n_holders > 0 && !entry.kept);
  if (!by_key_.emplace(name.key, place.index()).second) return;
  entry.kept = true;
  entry.name = name;
}

void KvPool::Release(uint32_t index) {
  const MutexLock lock(mutex_);
  Entry& entry = entries_[index];
  if (--entry.n_holders > 0) return;
  if (entry.kept) {
    entry.idle = idle_.insert(idle_.begin(), index);
  } else {
    free_.push_back(index);
  }
}

uint32_t KvPool::n_kept() const {
  const MutexLock lock(mutex_);
  return static_cast<uint32_t>(by_key_.size());
}

}  // namespace stagecoach::worker
