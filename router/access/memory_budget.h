// A limit on the memory that client requests hold together.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace stagecoach::router {

// Thread-safe; outlives its leases.
class MemoryBudget {
 public:
  // Bytes taken from a budget; the destructor returns them. One thread at a time.
  class Lease {
   public:
    Lease() = default;
    // A null budget has no limit.
    explicit Lease(MemoryBudget* budget) : budget_(budget) {}
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Lease() { ShrinkTo(0); }

    // Grows the lease to `bytes`. False, and nothing changes, if the budget has too few.
    bool GrowTo(size_t bytes) {
      if (budget_ == nullptr || bytes <= bytes_ || bytes <= budget_->small_bytes_) return true;
      const size_t more = bytes - bytes_;
      if (budget_->used_.fetch_add(more) + more > budget_->limit_bytes_) {
        budget_->used_ -= more;
        return false;
      }
      bytes_ = bytes;
      return true;
    }
    void ShrinkTo(size_t bytes) {
      if (bytes >= bytes_) return;
      const size_t kept = bytes <= budget_->small_bytes_ ? 0 : bytes;
      budget_->used_ -= bytes_ - kept;
      bytes_ = kept;
    }

   private:
    MemoryBudget* budget_ = nullptr;
    size_t bytes_ = 0;
  };

  // A lease of at most `small_bytes` takes nothing, so that large requests, which may use up the
  // budget, never block small ones. The number of requests bounds what small ones take.
  explicit MemoryBudget(size_t limit_bytes, size_t small_bytes = 0)
      : limit_bytes_(limit_bytes), small_bytes_(small_bytes) {}

  size_t limit_bytes() const { return limit_bytes_; }
  size_t used_bytes() const { return used_; }

 private:
  const size_t limit_bytes_;
  const size_t small_bytes_;
  std::atomic<size_t> used_{0};
};

}  // namespace stagecoach::router
