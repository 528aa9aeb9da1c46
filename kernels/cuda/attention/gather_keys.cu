#include "kernels/cuda/attention/gather_keys.h"

#include "common/check.h"
#include "kernels/cuda/attention/fp8_rows.h"
#include "kernels/cuda/attention/kv_rows.h"
#include "kernels/cuda/device/last_start.h"
#include "kernels/cuda/device/numbers.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kElementBytes = 2;
constexpr int kPieceBytes = 16;  // bytes that a thread copies at once
constexpr int kUnroll = 4;       // pieces of keys, and as many of values, in flight per thread

struct GatherParams {
  const unsigned char *k, *v;  // the cache
  KvSides sides;
  unsigned char *to_k, *to_v;
  const int32_t* block_tables;
  GatherPlan plan;
  int64_t capacity;
  int32_t n_kv_heads, head_dim;
  KvHeads heads;
};

// How to read pieces of a cache of 16-bit numbers.
struct PlainPieces {
  __device__ __forceinline__ static uint4 Load(const GatherParams& p, const unsigned char* cache,
                                               bool /*is_v*/, int32_t row, int32_t piece) {
    const int32_t row_bytes = p.head_dim * kElementBytes;
    return *reinterpret_cast<const uint4*>(cache + int64_t{row} * kBlockTokens * row_bytes +
                                           piece * kPieceBytes);
  }
};
template <typename T>
struct Fp8Pieces {
  __device__ __forceinline__ static uint4 Load(const GatherParams& p, const unsigned char* cache,
                                               bool is_v, int32_t row, int32_t piece) {
    constexpr int kCodes = kPieceBytes / kElementBytes;  // of a piece
    const unsigned char* const head =
        cache + int64_t{row} * static_cast<int64_t>(KvFp8HeadBytes(p.head_dim));
    const auto* const scales = reinterpret_cast<const uint16_t*>(head + KvFp8CodeBytes(p.head_dim));
    const int32_t key = piece * kCodes / p.head_dim;
    const unsigned char* const codes =
        head + key * p.head_dim +
        KvFp8Place8(piece - key * (p.head_dim / kCodes), p.head_dim, is_v);
    return Fp8Numbers<T>(*reinterpret_cast<const uint2*>(codes), Fp8Factor<T>(scales[key]));
  }
};

// One CTA per KV block. The keys of one head and block are contiguous in source and destination.
template <typename Pieces>
__global__ void __launch_bounds__(kThreads) GatherKernel(const GatherParams p) {
  LetNextStart();
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t s = LastStart(p.plan.block_starts, p.plan.n_seqs, block);
  const int32_t index = block - LoadPlan(p.plan.block_starts + s);
  const int32_t n_keys = LoadPlan(p.plan.n_keys + s) - index * kBlockTokens;
  const int32_t row_bytes = p.head_dim * kElementBytes;
  const int32_t pieces_of_row = row_bytes / kPieceBytes;
  const int32_t pieces_of_head = kBlockTokens * pieces_of_row;
  const int32_t n_pieces = pieces_of_head * p.heads.n;
  int32_t from = 0;  // cache row of the first head
  if (n_keys > 0) {
    from = LoadPlan(p.block_tables + LoadPlan(p.plan.first_entries + s) + index) * p.n_kv_heads +
           p.heads.first;
  }
  const auto load = [&](bool is_v, int32_t piece) {
    const int32_t row =
        CacheRowOf(p.sides, is_v ? p.sides.v : p.sides.k, from + piece / pieces_of_head);
    return Pieces::Load(p, is_v ? p.v : p.k, is_v, row, piece % pieces_of_head);
  };
  const int64_t to = int64_t{block} * kBlockTokens * row_bytes;
  const int64_t to_head = p.capacity * row_bytes;
  WaitForPrevious();
  for (int32_t first = static_cast<int32_t>(threadIdx.x); first < n_pieces;
       first += kThreads * kUnroll) {
    uint4 k[kUnroll], v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int32_t piece = first + u * kThreads;
      k[u] = v[u] = uint4{};
      if (piece < n_pieces && piece % pieces_of_head / pieces_of_row < n_keys) {
        k[u] = load(/*is_v=*/false, piece);
        v[u] = load(/*is_v=*/true, piece);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int32_t piece = first + u * kThreads;
      if (piece >= n_pieces) break;
      const int64_t at =
          to + piece / pieces_of_head * to_head + int64_t{piece % pieces_of_head} * kPieceBytes;
      *reinterpret_cast<uint4*>(p.to_k + at) = k[u];
      *reinterpret_cast<uint4*>(p.to_v + at) = v[u];
    }
  }
}

}  // namespace

int64_t GatheredCapacity(size_t bytes, int32_t n_kv_heads, int32_t head_dim) {
  return static_cast<int64_t>(bytes) / BytesOfGatheredKey(n_kv_heads, head_dim) / kGatheredTile *
         kGatheredTile;
}

GatheredKeys GatheredIn(void* memory, size_t bytes, int32_t n_kv_heads, int32_t head_dim) {
  const int64_t capacity = GatheredCapacity(bytes, n_kv_heads, head_dim);
  return {.k = memory,
          .v = static_cast<unsigned char*>(memory) +
               capacity * BytesOfGatheredKey(n_kv_heads, head_dim) / 2,
          .capacity = capacity};
}

cudaError_t GatherKeys(const Stream& stream, const AttentionArgs& args, const GatherPlan& plan,
                       const KvHeads& heads, const GatheredKeys& to, const KvSides& sides) {
  SC_CHECK(int64_t{plan.n_blocks} * kBlockTokens <= to.capacity);
  SC_CHECK(args.head_dim * kElementBytes % kPieceBytes == 0);
  const GatherParams params{
      .k = static_cast<const unsigned char*>(args.kv.k),
      .v = static_cast<const unsigned char*>(args.kv.v),
      .sides = sides,
      .to_k = static_cast<unsigned char*>(to.k),
      .to_v = static_cast<unsigned char*>(to.v),
      .block_tables = args.step->groups[static_cast<size_t>(args.group)].block_tables,
      .plan = plan,
      .capacity = to.capacity,
      .n_kv_heads = args.n_kv_heads,
      .head_dim = args.head_dim,
      .heads = heads};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.n_blocks)), .block = kThreads};
  if (args.kv.dtype != DType::kFp8) {
    return Launch<&GatherKernel<PlainPieces>>(stream, shape, params);
  }
  return args.qkv.dtype == DType::kBF16
             ? Launch<&GatherKernel<Fp8Pieces<BF16>>>(stream, shape, params)
             : Launch<&GatherKernel<Fp8Pieces<F16>>>(stream, shape, params);
}

}  // namespace stagecoach::kernels::cuda
