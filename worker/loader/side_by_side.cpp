#include "worker/loader/side_by_side.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "common/encoding/rows.h"

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

void DecodeSideBySide(const Encoding& encoding, const void* rows, size_t n_rows, size_t cols,
                      float* out) {
  constexpr size_t kWorthThread = size_t{1} << 18;  // values
  const size_t row_bytes = RowBytes(encoding, cols);
  SideBySide(n_rows, kWorthThread / std::max<size_t>(cols, 1) + 1, [&](size_t row, size_t end) {
    DecodeRows(encoding, static_cast<const char*>(rows) + row * row_bytes, end - row, cols,
               out + row * cols);
  });
}

}  // namespace stagecoach::worker
