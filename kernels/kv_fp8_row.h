// Rows of KV caches of DType::kFp8 (common/kv_fp8.h) in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stagecoach::kernels {

// Writes the code of each number, and returns the bits of the scale. Equal rows give equal bytes on
// every machine. A NaN counts as the largest magnitude, and becomes any number.
// codes: [row.size()]
uint16_t EncodeKvFp8Row(std::span<const float> row, uint8_t* codes);

// Row `token` of a head of a block whose codes are row-major.
// head: [KvFp8HeadBytes(row.size())], needs no alignment
void StoreKvFp8Row(std::span<const float> row, size_t token, uint8_t* head);
void LoadKvFp8Row(const uint8_t* head, size_t token, std::span<float> row);

}  // namespace stagecoach::kernels
