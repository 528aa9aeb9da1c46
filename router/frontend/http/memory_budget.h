// A memory limit that many requests share.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace stagecoach::router::http {

// Thread-safe; outlives its leases.
class MemoryBudget {
 public:
  // Bytes taken from a budget; the destructor returns them. One thread at a time.
  class Lease {
   public:
    Lease() = default;
    explicit Lease(MemoryBudget* budget) : budget_(budget) {}
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Lease() {
      if (budget_ != nullptr) budget_->used_ -= bytes_;
    }

    // Grows the lease to `bytes`. False, and nothing changes, if the budget has too few.
    bool GrowTo(size_t bytes) {
      if (bytes <= bytes_) return true;
      const size_t more = bytes - bytes_;
      if (budget_->used_.fetch_add(more) + more > budget_->limit_) {
        budget_->used_ -= more;
        return false;
      }
      bytes_ = bytes;
      return true;
    }

   private:
    MemoryBudget* budget_ = nullptr;
    size_t bytes_ = 0;
  };

  explicit MemoryBudget(size_t limit_bytes) : limit_(limit_bytes) {}

 private:
  const size_t limit_;
  std::atomic<size_t> used_{0};
};

}  // namespace stagecoach::router::http
