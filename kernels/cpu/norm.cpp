#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

absl::Status Norm(const NormArgs& args, CpuContext& context) {
  const size_t width = static_cast<size_t>(args.width);
  RunPieces(*context.pool, static_cast<size_t>(args.n_rows), width,
            [&](size_t begin, size_t end) HWY_ATTR {
              for (size_t row = begin; row < end; ++row) {
                NormRow(args.x.f32() + row * width, args.weight, args.bias, width, args.kind,
                        args.eps, args.out.f32() + row * width, args.add_to_out);
              }
            });
  return absl::OkStatus();
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach::kernels {

HWY_EXPORT(Norm);

CpuKernel<NormArgs> ChooseNorm() { return &HWY_DYNAMIC_DISPATCH(Norm); }

}  // namespace stagecoach::kernels
#endif
