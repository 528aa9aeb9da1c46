#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// n values in (-1, 1), other ones for each seed.
cudaError_t FillRandom(const Stream& stream, Act out, int64_t n, uint32_t seed);
// Reads both, n words of 4 bytes each, so that they are in the caches.
struct WordsToRead {
  const void* at = nullptr;
  int64_t n = 0;
};
cudaError_t ReadWords(const Stream& stream, const WordsToRead& a, const WordsToRead& b);
// *n_different += the number of 16-bit words of a that are not b's.
cudaError_t CountDifferent(const Stream& stream, const void* a, const void* b, int64_t n_words,
                           uint32_t* n_different);

}  // namespace stagecoach::kernels::cuda
