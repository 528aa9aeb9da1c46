#include "kernels/cuda/attention/kv_copy.h"

#include "common/check.h"
#include "kernels/cuda/attention/fp8_rows.h"
#include "kernels/cuda/attention/kv_rows.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPieceBytes = 16;  // bytes that a thread copies at once

struct KvCopyParams {
  unsigned char *k, *v;  // the cache
  KvSides sides;
  unsigned char* host;
  size_t place_bytes;
  const KvBlockCopy* copies;
  int32_t n_kv_heads;
  int32_t row_bytes;     // of a cache row: one block's keys or values of one head
  int32_t fp8_head_dim;  // 0: not FP8
};

// Codes between the order in the cache and that of the elements, which is the same in both
// directions: see KvFp8Place.
__device__ __forceinline__ uint32_t ReorderedCodes(uint32_t word) {
  return (word & 0xff0000ffu) | (word & 0xff00u) << 8 | (word >> 8 & 0xff00u);
}

// Copies a head of an FP8 cache: codes, then scales. Where 8 codes are apart, so are the words.
template <bool kExports>
__device__ __forceinline__ void CopyFp8Head(const KvCopyParams& p, bool is_v, unsigned char* cache,
                                            unsigned char* host) {
  const int32_t words_of_row = p.fp8_head_dim / 4, n_code_words = kBlockTokens * words_of_row;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < p.row_bytes / 4; i += kThreads) {
    int32_t place = i * 4;
    if (i < n_code_words) {
      const int32_t row = i / words_of_row, word = i % words_of_row;
      place = row * p.fp8_head_dim + KvFp8Place(word * 4, p.fp8_head_dim, is_v);
    }
    auto* const in_cache = reinterpret_cast<uint32_t*>(cache + place);
    auto* const in_host = reinterpret_cast<uint32_t*>(host) + i;
    const uint32_t bits = kExports ? *in_cache : *in_host;
    *(kExports ? in_host : in_cache) = i < n_code_words ? ReorderedCodes(bits) : bits;
  }
}

// Copies one cache row. blockIdx.x counts the copies; blockIdx.y counts the heads of the keys and
// then those of the values, as in host memory. A cache row has the same bytes in both places,
// because KvSides only moves whole rows.
template <bool kExports>
__device__ __forceinline__ void CopyRow(const KvCopyParams& p) {
  const auto head = static_cast<int32_t>(blockIdx.y);
  const bool is_v = head >= p.n_kv_heads;
  const KvBlockCopy copy = p.copies[blockIdx.x];
  const int32_t row = CacheRowOf(
      p.sides, is_v ? p.sides.v : p.sides.k,
      static_cast<int32_t>(copy.block) * p.n_kv_heads + (is_v ? head - p.n_kv_heads : head));
  unsigned char* const cache = (is_v ? p.v : p.k) + int64_t{row} * p.row_bytes;
  unsigned char* const host =
      p.host + copy.place * p.place_bytes + int64_t{blockIdx.y} * p.row_bytes;
  if (p.fp8_head_dim > 0) return CopyFp8Head<kExports>(p, is_v, cache, host);
  const auto* const from = reinterpret_cast<const uint4*>(kExports ? cache : host);
  auto* const to = reinterpret_cast<uint4*>(kExports ? host : cache);
  const int32_t n_pieces = p.row_bytes / kPieceBytes;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < n_pieces; i += kThreads) to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads) ExportKernel(const KvCopyParams p) {
  LetNextStart();
  WaitForPrevious();
  CopyRow<true>(p);
}

// Never calls LetNextStart(): decode reads the keys of earlier steps before WaitForPrevious().
__global__ void __launch_bounds__(kThreads) ImportKernel(const KvCopyParams p) {
  WaitForPrevious();
  CopyRow<false>(p);
}

template <auto kKernel>
cudaError_t Copy(const Stream& stream, const KvCopyArgs& args, const KvSides& sides) {
  const auto row_bytes = static_cast<int32_t>(KvBlockBytes(args.kv.dtype, 1, args.head_dim, 1));
  const bool is_fp8 = args.kv.dtype == DType::kFp8;
  SC_CHECK(row_bytes % kPieceBytes == 0 && (!is_fp8 || args.head_dim % 4 == 0));
  SC_CHECK(reinterpret_cast<uintptr_t>(args.host) % kPieceBytes == 0);
  SC_CHECK(args.place_bytes % kPieceBytes == 0);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(args.copies.size()),
                   static_cast<unsigned>(args.kv.n_vectors() * args.n_kv_heads)),
      .block = kThreads};
  return Launch<kKernel>(stream, shape,
                         KvCopyParams{.k = static_cast<unsigned char*>(args.kv.k),
                                      .v = static_cast<unsigned char*>(args.kv.v),
                                      .sides = sides,
                                      .host = static_cast<unsigned char*>(args.host),
                                      .place_bytes = args.place_bytes,
                                      .copies = args.copies.data(),
                                      .n_kv_heads = args.n_kv_heads,
                                      .row_bytes = row_bytes,
                                      .fp8_head_dim = is_fp8 ? args.head_dim : 0});
}

}  // namespace

cudaError_t ExportKv(const Stream& stream, const KvCopyArgs& args, const KvSides& sides) {
  return Copy<&ExportKernel>(stream, args, sides);
}

cudaError_t ImportKv(const Stream& stream, const KvCopyArgs& args, const KvSides& sides) {
  return Copy<&ImportKernel>(stream, args, sides);
}

}  // namespace stagecoach::kernels::cuda
