#include "kernels/cpu/kv_copy.h"

#include <cstring>

#include "common/check.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/kv_layout.h"

namespace stagecoach::kernels {
namespace {

// Copies one head of one block, keys or values: panels in the cache, [kBlock, head_dim] on the
// host. With kFp8, the scales follow on both sides.
template <DType kType, bool kExports>
void CopyHead(unsigned char* cache, unsigned char* host, size_t head_dim, bool is_v) {
  constexpr size_t kBytes = DTypeBytes(kType);
  for (size_t token = 0; token < kBlock; ++token) {
    for (size_t i = 0; i < head_dim; ++i) {
      const size_t index = is_v ? VIndex(kType, token, i, head_dim) : KIndex(kType, token, i);
      unsigned char* const in_cache = cache + index * kBytes;
      unsigned char* const in_host = host + (token * head_dim + i) * kBytes;
      std::memcpy(kExports ? in_host : in_cache, kExports ? in_cache : in_host, kBytes);
    }
  }
  if constexpr (kType == DType::kFp8) {
    const size_t codes = KvFp8CodeBytes(head_dim), scales = KvFp8HeadBytes(head_dim) - codes;
    std::memcpy((kExports ? host : cache) + codes, (kExports ? cache : host) + codes, scales);
  }
}

template <DType kType, bool kExports>
void CopyBlocks(const KvCopyArgs& args, ThreadPool& pool) {
  const size_t head_dim = static_cast<size_t>(args.head_dim);
  const size_t n_heads = static_cast<size_t>(args.n_kv_heads);
  const size_t n_of_block = static_cast<size_t>(args.kv.n_vectors()) * n_heads;
  const size_t elements = kBlock * head_dim;  // of a head in a block
  const size_t head_bytes = KvBlockBytes(kType, 1, args.head_dim, 1);
  RunPieces(pool, args.copies.size() * n_of_block, elements, [&](size_t begin, size_t end) {
    for (size_t item = begin; item < end; ++item) {
      const auto [block, place] = args.copies[item / n_of_block];
      const size_t head = item % n_of_block;
      const bool is_v = head >= n_heads;
      const size_t start =
          KvHeadStart(kType, block, is_v ? head - n_heads : head, n_heads, head_dim);
      unsigned char* const host =
          static_cast<unsigned char*>(args.host) + place * args.place_bytes + head * head_bytes;
      CopyHead<kType, kExports>(static_cast<unsigned char*>(is_v ? args.kv.v : args.kv.k) + start,
                                host, head_dim, is_v);
    }
  });
}

template <bool kExports>
void Copy(const KvCopyArgs& args, ThreadPool& pool) {
  SC_CHECK(args.head_dim % 2 == 0);
  switch (args.kv.dtype) {
    case DType::kF32:
      return CopyBlocks<DType::kF32, kExports>(args, pool);
    case DType::kBF16:
      return CopyBlocks<DType::kBF16, kExports>(args, pool);
    case DType::kF16:
      return CopyBlocks<DType::kF16, kExports>(args, pool);
    case DType::kFp8:
      return CopyBlocks<DType::kFp8, kExports>(args, pool);
  }
}

}  // namespace

void CpuExportKv(const KvCopyArgs& args, ThreadPool& pool) { Copy<true>(args, pool); }

void CpuImportKv(const KvCopyArgs& args, ThreadPool& pool) { Copy<false>(args, pool); }

}  // namespace stagecoach::kernels
