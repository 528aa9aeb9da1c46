#include "kernels/cuda/device/compiled_for.h"

#include "kernels/cuda/device/launch.h"

namespace stagecoach::kernels::cuda {
namespace {

struct CompiledForParams {
  CompiledFor* found;
};

__global__ void CompiledForKernel(const CompiledForParams p) {
  WaitForPrevious();
#if defined(STAGECOACH_EMULATED_CUDA)
  *p.found = {.architecture = 900, .has_hopper = true};
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  *p.found = {.architecture = __CUDA_ARCH__, .has_hopper = true};
#elif defined(__CUDA_ARCH__)
  *p.found = {.architecture = __CUDA_ARCH__, .has_hopper = false};
#endif
}

}  // namespace

cudaError_t FindCompiledFor(cudaStream_t stream, CompiledFor* found) {
  void* memory = nullptr;
  cudaError_t error = cudaMalloc(&memory, sizeof(CompiledFor));
  if (error != cudaSuccess) return error;
  const CompiledForParams params{static_cast<CompiledFor*>(memory)};
  const Stream plain{.handle = stream};  // needs no feature
  error = Launch<&CompiledForKernel>(plain, {.grid = dim3(1), .block = dim3(1)}, params);
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(found, memory, sizeof(CompiledFor), cudaMemcpyDeviceToHost, stream);
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  const cudaError_t freed = cudaFree(memory);
  return error == cudaSuccess ? freed : error;
}

}  // namespace stagecoach::kernels::cuda
