#include "kernels/reference/reference_kv.h"

#include "common/check.h"
#include "common/float_convert.h"
#include "kernels/kv_fp8_row.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels {
namespace {

// Bytes before the head of the block.
size_t HeadOffset(const KvRowPlace& at, size_t head_dim) {
  SC_CHECK(at.block >= 0);
  const size_t head_bytes = KvBlockBytes(at.dtype, 1, static_cast<int32_t>(head_dim), 1);
  return (static_cast<size_t>(at.block) * at.n_kv_heads + at.kv_head) * head_bytes;
}

}  // namespace

void StoreKvRow(std::span<const float> row, const KvRowPlace& at, void* cache) {
  uint8_t* const head = static_cast<uint8_t*>(cache) + HeadOffset(at, row.size());
  const auto token = static_cast<size_t>(at.token);
  if (at.dtype == DType::kFp8) return StoreKvFp8Row(row, token, head);
  for (size_t i = 0; i < row.size(); ++i) {
    StoreElement(head, at.dtype, token * row.size() + i, row[i]);
  }
}

void LoadKvRow(const void* cache, const KvRowPlace& at, std::span<float> row) {
  const uint8_t* const head = static_cast<const uint8_t*>(cache) + HeadOffset(at, row.size());
  const auto token = static_cast<size_t>(at.token);
  if (at.dtype == DType::kFp8) return LoadKvFp8Row(head, token, row);
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = LoadElement(head, at.dtype, token * row.size() + i);
  }
}

}  // namespace stagecoach::kernels
