#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Fills `out` with n pseudo-random values in [-1, 1) that depend on `seed`.
cudaError_t FillRandom(const Stream& stream, Act out, int64_t n, uint32_t seed);
// Reads both arrays, n words of 4 bytes each, to bring them into the caches.
struct WordsToRead {
  const void* at = nullptr;
  int64_t n = 0;
};
cudaError_t ReadWords(const Stream& stream, const WordsToRead& a, const WordsToRead& b);
// *n_different += number of 16-bit words that differ between a and b.
cudaError_t CountDifferent(const Stream& stream, const void* a, const void* b, int64_t n_words,
                           uint32_t* n_different);

}  // namespace stagecoach::kernels::cuda
