#include "worker/loader/side_by_side.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace stagecoach::worker {

void SideBySide(size_t n, size_t worth_thread, const std::function<void(size_t, size_t)>& work) {
  static const size_t most_threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  const size_t n_parts = std::clamp<size_t>(n / worth_thread, 1, most_threads);
  std::vector<std::thread> threads;
  threads.reserve(n_parts - 1);
  for (size_t part = 1; part < n_parts; ++part) {
    threads.emplace_back(work, n * part / n_parts, n * (part + 1) / n_parts);
  }
  work(0, n / n_parts);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace stagecoach::worker
