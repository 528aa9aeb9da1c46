#include "kernels/cuda/attention/hopper_prefill.h"

#include <algorithm>
#include <iterator>

#include "kernels/cuda/attention/hopper_kernels.h"

namespace stagecoach::kernels::cuda {
namespace {

struct Kernel {
  int32_t head_dim;
  bool with_softcap;
  HopperKernel run;
};

const Kernel* Find(int32_t head_dim, bool with_softcap) {
  static constexpr Kernel kKernels[] = {
#define STAGECOACH_HOPPER_KERNEL(dim, softcap) {dim, softcap, &RunHopperPrefill<dim, softcap>},
      STAGECOACH_HOPPER_KERNELS
#undef STAGECOACH_HOPPER_KERNEL
  };
  const auto* const found =
      std::find_if(std::begin(kKernels), std::end(kKernels), [&](const Kernel& kernel) {
        return kernel.head_dim == head_dim && kernel.with_softcap == with_softcap;
      });
  return found == std::end(kKernels) ? nullptr : found;
}

}  // namespace

int32_t HopperTileRows(DType dtype, int32_t head_dim, bool with_softcap) {
  if (dtype != DType::kBF16 || Find(head_dim, with_softcap) == nullptr) return 0;
  return head_dim == 64 ? 192 : 128;  // FlashInfer's tile sizes
}

cudaError_t HopperPrefill(const Stream& stream, const AttentionArgs& args, const HopperPlan& plan,
                          const GatheredKeys& keys, const KvSides& sides) {
  const GatheredKeys gathered = keys.OfPart(plan.n_passes);
  const HopperKernel run = Find(args.head_dim, args.softcap > 0)->run;
  KvHeads heads{.first = 0, .n = args.n_kv_heads / plan.n_passes};
  for (; heads.first < args.n_kv_heads; heads.first += heads.n) {
    cudaError_t error = GatherKeys(stream, args, plan.gather, heads, gathered, sides);
    if (error == cudaSuccess) error = run(stream, args, plan, heads, gathered);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace stagecoach::kernels::cuda
