// Divides work on weights over threads. A load is short, so the threads live for one call.
#pragma once

#include <cstddef>
#include <functional>

#include "common/encoding/encoding.h"

namespace stagecoach::worker {

// Calls work(begin, end) for consecutive parts of [0, n), each at least `worth_thread` long, on up
// to 16 threads, and waits for all of them.
void SideBySide(size_t n, size_t worth_thread, const std::function<void(size_t, size_t)>& work);

// DecodeRows (common/encoding/rows.h) on several threads. One core would need minutes for a model.
void DecodeSideBySide(const Encoding& encoding, const void* rows, size_t n_rows, size_t cols,
                      float* out);

}  // namespace stagecoach::worker
