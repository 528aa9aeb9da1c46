#include "kernels/cpu/thread_pool.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <numeric>
#include <vector>

namespace stagecoach::kernels {
namespace {

TEST_CASE("Every task runs exactly once with any number of threads") {
  const int n_threads = GENERATE(1, 2, 3, 8);
  ThreadPool pool(n_threads);
  CHECK(pool.n_threads() == n_threads);
  for (size_t n_tasks : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> runs(n_tasks);
    pool.Run(n_tasks, [&](size_t task, int) { runs[task].fetch_add(1); });
    for (const auto& run : runs) CHECK(run.load() == 1);
  }
}

TEST_CASE("Two tasks never share a thread number at the same time") {
  ThreadPool pool(4);
  std::vector<int> inside(4);  // not atomic: ThreadSanitizer would report two users
  std::vector<size_t> sums(4);
  constexpr size_t kTasks = 20000;
  pool.Run(kTasks, [&](size_t task, int thread) {
    const size_t slot = static_cast<size_t>(thread);
    if (++inside[slot] != 1) std::abort();
    sums[slot] += task;
    --inside[slot];
  });
  CHECK(std::accumulate(sums.begin(), sums.end(), size_t{0}) == kTasks * (kTasks - 1) / 2);
}

TEST_CASE("A job sees the writes of the previous job") {
  ThreadPool pool(3);
  std::vector<int> values(300, 0);
  for (int round = 1; round <= 2000; ++round) {
    pool.Run(values.size(), [&](size_t i, int) { values[i] += 1; });
    pool.Run(values.size() / 3, [&](size_t i, int) {
      for (size_t k = 3 * i; k < 3 * i + 3; ++k) {
        if (values[k] != round) std::abort();
      }
    });
  }
  CHECK(values.front() == 2000);
}

}  // namespace
}  // namespace stagecoach::kernels
