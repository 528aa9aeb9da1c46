#include "kernels/cuda/emulation/simt.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/emulation/fiber.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace simt {
namespace {

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "emulated kernel, block (%u, %u, %u), thread (%u, %u, %u): %s\n", blockIdx.x,
               blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, what);
  std::abort();
}

enum class State { kReady, kAtWarpBarrier, kAtBlockBarrier, kDone };

// A thread of a CTA. Threads of later CTAs reuse its fiber.
struct Thread {
  explicit Thread(void (*live)()) : fiber(live) {}
  Fiber fiber;
  State state = State::kDone;
  dim3 index;
  uint64_t n_collectives = 0;
};

struct Warp {
  // Two, because a lane may enter the next collective while other lanes still read this one.
  Exchange exchanges[2];
};

class Machine {
 public:
  static Machine& Get() {
    static Machine machine;
    return machine;
  }

  void Run(dim3 grid, dim3 block, size_t dynamic_shared_bytes,
           const std::function<void()>& thread) {
    const std::lock_guard lock(mutex_);
    thread_ = &thread;
    gridDim = grid;
    blockDim = block;
    n_threads_ = size_t{block.x} * block.y * block.z;
    if (n_threads_ == 0 || n_threads_ > 1024) Fail("1 to 1024 threads make a block");
    while (threads_.size() < n_threads_) threads_.push_back(std::make_unique<Thread>(&Live));
    warps_.resize((n_threads_ + 31) / 32);
    // More than the requested size, in units of 16 bytes, which is the alignment that hardware
    // guarantees.
    shared_.resize((dynamic_shared_bytes + 31) / 16);
    for (unsigned z = 0; z < grid.z; ++z) {
      for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) {
          blockIdx = dim3(x, y, z);
          RunBlock();
        }
      }
    }
  }

  void* shared() { return shared_.data(); }

  void Yield(State state) {
    Thread& thread = *current_;
    thread.state = state;
    thread.fiber.Yield();
    threadIdx = thread.index;
  }

  const Exchange& Collect(const void* value, size_t bytes) {
    Exchange& exchange = warps_[ThreadOfBlock() / 32].exchanges[current_->n_collectives++ % 2];
    std::memcpy(exchange.lanes[Lane()], value, bytes);
    Yield(State::kAtWarpBarrier);
    return exchange;
  }

 private:
  Machine() {
    const char* const seed = std::getenv("STAGECOACH_SIMT_SEED");
    random_.seed(seed != nullptr ? static_cast<unsigned>(std::atoi(seed)) : 1u);
    order_.resize(1024);
    std::iota(order_.begin(), order_.end(), 0u);
  }

  // The body of a fiber: it runs one thread after another.
  static void Live() {
    Machine& machine = Get();
    for (;;) {
      threadIdx = machine.current_->index;
      (*machine.thread_)();
      machine.Yield(State::kDone);
    }
  }

  void Resume(Thread& thread) {
    current_ = &thread;
    if (!thread.fiber.Resume()) Fail("no memory for a thread's stack");
  }

  void RunBlock() {
    std::shuffle(order_.begin(), order_.end(), random_);
    for (size_t i = 0; i < n_threads_; ++i) {
      Thread& thread = *threads_[i];
      thread.state = State::kReady;
      thread.n_collectives = 0;
      const auto t = static_cast<unsigned>(i);
      thread.index =
          dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y));
    }
    for (;;) {
      size_t n_done = 0;
      for (size_t w = 0; w < warps_.size(); ++w) n_done += RunWarp((w + order_[0]) % warps_.size());
      if (n_done == n_threads_) return;
      // All threads that are not done wait at __syncthreads.
      if (n_done != 0) Fail("a thread has ended while others wait at __syncthreads");
      for (size_t i = 0; i < n_threads_; ++i) threads_[i]->state = State::kReady;
    }
  }

  // Runs until every lane is done or at __syncthreads. Returns the number of lanes that are done.
  size_t RunWarp(size_t warp) {
    const size_t first = warp * 32, n = std::min<size_t>(32, n_threads_ - first);
    for (;;) {
      for (size_t i = 0; i < 32; ++i) {
        const size_t lane = order_[i] % 32;
        if (lane < n && threads_[first + lane]->state == State::kReady)
          Resume(*threads_[first + lane]);
      }
      // order_ modulo 32 may miss some lanes: run those too.
      for (size_t lane = 0; lane < n; ++lane) {
        if (threads_[first + lane]->state == State::kReady) Resume(*threads_[first + lane]);
      }
      size_t n_at_warp = 0, n_at_block = 0, n_done = 0;
      for (size_t lane = 0; lane < n; ++lane) {
        const State state = threads_[first + lane]->state;
        n_at_warp += state == State::kAtWarpBarrier ? 1 : 0;
        n_at_block += state == State::kAtBlockBarrier ? 1 : 0;
        n_done += state == State::kDone ? 1 : 0;
      }
      if (n_at_warp == 0) {
        if (n_done != 0 && n_done != n && n_at_block != 0) {
          Fail("a lane has ended while others wait at __syncthreads");
        }
        return n_done;
      }
      if (n_at_warp != n) Fail("not all lanes take part in a warp's collective");
      for (size_t lane = 0; lane < n; ++lane) threads_[first + lane]->state = State::kReady;
    }
  }

  std::mutex mutex_;
  std::mt19937 random_;
  std::vector<unsigned> order_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp> warps_;
  struct alignas(16) Shared {
    std::byte bytes[16];
  };
  std::vector<Shared> shared_;
  const std::function<void()>* thread_ = nullptr;
  size_t n_threads_ = 0;
  Thread* current_ = nullptr;
};

}  // namespace

void RunGrid(dim3 grid, dim3 block, size_t dynamic_shared_bytes,
             const std::function<void()>& thread) {
  Machine::Get().Run(grid, block, dynamic_shared_bytes, thread);
}

void* DynamicShared() { return Machine::Get().shared(); }
void BlockBarrier() { Machine::Get().Yield(State::kAtBlockBarrier); }
void WarpBarrier() { Machine::Get().Yield(State::kAtWarpBarrier); }
const Exchange& Collect(const void* value, size_t bytes) {
  return Machine::Get().Collect(value, bytes);
}

}  // namespace simt
