// GEMMs with simple loops, for builds without cuBLASLt.
#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/skinny_gemm.h"

namespace stagecoach::kernels::cuda {
namespace {

void Multiply(const GemmArgs& args, const void* weights) {
  const Matrix& w = *args.w;
  const auto cols = static_cast<size_t>(w.cols), rows = static_cast<size_t>(w.rows);
  for (size_t t = 0; t < static_cast<size_t>(args.n_rows); ++t) {
    for (size_t n = 0; n < rows; ++n) {
      float sum = 0;
      for (size_t k = 0; k < cols; ++k) {
        sum += LoadElement(args.x.data, args.x.dtype, t * cols + k) *
               LoadElement(weights, w.dtype, n * cols + k);
      }
      if (args.bias != nullptr) sum += args.bias[n];
      const size_t at = t * rows + n;
      if (args.add_to_y) sum += LoadElement(args.y.data, args.y.dtype, at);
      StoreElement(args.y.data, args.y.dtype, at, sum);
    }
  }
}

void MultiplyFp8(const Fp8GemmArgs& args) {
  const auto cols = static_cast<size_t>(args.w.cols), rows = static_cast<size_t>(args.w.rows);
  for (size_t t = 0; t < static_cast<size_t>(args.n_rows); ++t) {
    for (size_t n = 0; n < rows; ++n) {
      float sum = 0;
      for (size_t k = 0; k < cols; ++k) {
        sum += FloatFromFp8(args.x.codes[t * cols + k]) * FloatFromFp8(args.w.codes[n * cols + k]);
      }
      sum *= args.x.scales[t] * args.w.scales[n];
      const size_t at = t * static_cast<size_t>(args.y_stride) + n;
      if (args.add_to_y) sum += LoadElement(args.y.data, args.y.dtype, at);
      StoreElement(args.y.data, args.y.dtype, at, sum);
    }
  }
}

class EmulatedGemms final : public Gemms {
 public:
  EmulatedGemms(const Stream* stream, const GemmOptions& options)
      : stream_(stream), options_(options) {}

  std::string Numerics() const override { return "emulated"; }
  absl::Status Run(const GemmArgs& args) override {
    if (!options_.batch_invariant && args.n_rows <= kMaxSkinnyRows &&
        HasSkinnyGemm(args.x.dtype, args.w->dtype, args.w->cols)) {
      return ToStatus(SkinnyGemm(*stream_, args), "a product failed");
    }
    // The caller may destroy its Matrix before the work runs, so the closure holds a copy that
    // shares the memory.
    const auto w = std::make_shared<Matrix>(*args.w);
    GemmArgs product = args;
    product.w = w.get();
    simt::Enqueue(stream_->handle, [product, w] { Multiply(product, w->buffer.data.get()); });
    return absl::OkStatus();
  }
  absl::Status RunFp8(const Fp8GemmArgs& args) override {
    simt::Enqueue(stream_->handle, [args] { MultiplyFp8(args); });
    return absl::OkStatus();
  }
  absl::StatusOr<bool> RunGatedFp8(const Fp8GemmArgs&, const ActivationArgs&) override {
    return false;
  }
  absl::StatusOr<bool> RunGated(const GemmArgs&, const ActivationArgs&) override { return false; }
  absl::Status SetTuning(bool) override { return absl::OkStatus(); }
  std::string Choices() const override { return ""; }
  absl::Status UseChoices(std::string_view) override { return absl::OkStatus(); }

 private:
  const Stream* const stream_;
  const GemmOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gemms>> Gemms::Create(const Stream* stream,
                                                     const GemmOptions& options) {
  return std::make_unique<EmulatedGemms>(stream, options);
}

}  // namespace stagecoach::kernels::cuda
