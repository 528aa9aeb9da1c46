#include "kernels/cuda/experts/expert_tables.h"

#include <cstring>

#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/hopper/hopper_grouped.h"

namespace stagecoach::kernels::cuda {
namespace {

// Byte offset of the tensor maps in a table.
size_t MapsAt(size_t n_matrices) {
  return (n_matrices * sizeof(void*) + kTensorMapBytes - 1) / kTensorMapBytes * kTensorMapBytes;
}

// cudaErrorNotSupported if the driver cannot encode maps.
cudaError_t Fill(const Stream& stream, std::span<const Matrix> matrices, unsigned char* table) {
  for (size_t i = 0; i < matrices.size(); ++i) {
    const void* const address = matrices[i].buffer.data.get();
    std::memcpy(table + i * sizeof(address), &address, sizeof(address));
  }
  if (!stream.groups_gemms || !HasHopperGrouped(stream, matrices, /*gated=*/false)) {
    return cudaSuccess;
  }
  return MakeMatrixMaps(matrices, table + MapsAt(matrices.size()));
}

}  // namespace

absl::StatusOr<const void* const*> ExpertTables::TableOf(std::span<const Matrix> matrices) {
  std::vector<std::tuple<const void*, int32_t, int32_t>> contents;
  contents.reserve(matrices.size());
  for (const Matrix& matrix : matrices) {
    contents.emplace_back(matrix.buffer.data.get(), matrix.rows, matrix.cols);
  }
  Buffer& table = tables_[contents];
  if (table.bytes == 0) {
    std::vector<unsigned char> filled(MapsAt(matrices.size()) + matrices.size() * kTensorMapBytes);
    SC_RETURN_IF_ERROR(
        ToStatus(Fill(*stream_, matrices, filled.data()), "cannot describe experts"));
    SC_ASSIGN_OR_RETURN(table, AllocateDevice(filled.size()));
    SC_RETURN_IF_ERROR(upload_(filled.data(), table.data.get(), filled.size()));
  }
  return static_cast<const void* const*>(table.data.get());
}

const void* ExpertTableMaps(const void* const* table, size_t n_matrices) {
  return reinterpret_cast<const unsigned char*>(table) + MapsAt(n_matrices);
}

}  // namespace stagecoach::kernels::cuda
