#include "kernels/cuda/hopper/tensor_map.h"

namespace stagecoach::kernels::cuda {

cudaError_t MakeTensorMap(ConstAct of, const MappedShape& shape, const MapBox& box,
                          CUtensorMap* map) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  // Looked up at run time: nothing else needs the driver library.
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &result);
    return error == cudaSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto size = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t dims[4] = {kSlab, size(shape.rows), size(shape.cols / kSlab), size(shape.parts)};
  const cuuint64_t strides[3] = {size(int64_t{2} * shape.cols), 2 * kSlab,
                                 size(int64_t{2} * shape.rows * shape.cols)};  // bytes
  const cuuint32_t box_dims[4] = {kSlab, static_cast<cuuint32_t>(box.rows),
                                  static_cast<cuuint32_t>(box.slabs),
                                  static_cast<cuuint32_t>(box.parts)};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUresult made = encode(
      map,
      of.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      4, const_cast<void*>(of.data), dims, strides, box_dims, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace stagecoach::kernels::cuda
