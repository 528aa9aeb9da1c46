// Split of elementwise and row operations into tasks. Small operations run on the calling thread,
// because waking a thread costs more than they do.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/thread_pool.h"

namespace stagecoach::kernels {

// Calls run(begin, end) over pieces of [0, n_items) of about 16 Ki elements each.
template <typename F>
void RunPieces(ThreadPool& pool, size_t n_items, size_t elements_per_item, const F& run) {
  constexpr size_t kElements = size_t{16} << 10;
  const size_t per_task = std::max<size_t>(1, kElements / std::max<size_t>(1, elements_per_item));
  pool.Run((n_items + per_task - 1) / per_task, [&](size_t task, int) {
    run(task * per_task, std::min(n_items, (task + 1) * per_task));
  });
}

}  // namespace stagecoach::kernels
