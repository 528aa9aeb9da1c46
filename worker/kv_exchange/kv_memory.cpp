#include "worker/kv_exchange/kv_memory.h"

#include <algorithm>
#include <iterator>

#include "common/check.h"

namespace stagecoach::worker {

KvMemory::Run& KvMemory::Run::operator=(Run&& other) noexcept {
  if (this == &other) return *this;
  Return();
  memory_ = std::exchange(other.memory_, nullptr);
  first_ = other.first_;
  n_ = std::exchange(other.n_, 0);
  return *this;
}

unsigned char* KvMemory::Run::data() const {
  return memory_->memory_.As<unsigned char>() + first_ * memory_->block_bytes_;
}

void KvMemory::Run::Return() {
  if (memory_ == nullptr || n_ == 0) return;
  const MutexLock lock(memory_->mutex_);
  auto& free = memory_->free_;
  auto run = free.emplace(first_, n_).first;
  if (const auto next = std::next(run); next != free.end() && first_ + n_ == next->first) {
    run->second += next->second;
    free.erase(next);
  }
  if (run != free.begin()) {
    const auto before = std::prev(run);
    if (before->first + before->second == run->first) {
      before->second += run->second;
      free.erase(run);
    }
  }
  n_ = 0;
}

KvMemory::KvMemory(kernels::Buffer memory, uint64_t block_bytes)
    : memory_(std::move(memory)),
      block_bytes_(block_bytes),
      n_total_(static_cast<uint32_t>(memory_.bytes / block_bytes)),
      free_{{0, n_total_}} {
  SC_CHECK(n_total_ > 0);
}

KvMemory::Run KvMemory::TakeUpTo(uint32_t n) {
  SC_CHECK(n > 0);
  const MutexLock lock(mutex_);
  auto found =
      std::find_if(free_.begin(), free_.end(), [n](const auto& run) { return run.second >= n; });
  if (found == free_.end()) {
    found = std::max_element(free_.begin(), free_.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
  }
  if (found == free_.end()) return {};
  const auto [first, length] = *found;
  const uint32_t n_taken = std::min(n, length);
  free_.erase(found);
  if (length > n_taken) free_.emplace(first + n_taken, length - n_taken);
  return Run(this, first, n_taken);
}

uint32_t KvMemory::n_free() const {
  const MutexLock lock(mutex_);
  uint32_t n = 0;
  for (const auto& [first, length] : free_) n += length;
  return n;
}

}  // namespace stagecoach::worker
