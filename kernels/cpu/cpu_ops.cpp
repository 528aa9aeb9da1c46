#include "kernels/cpu/cpu_ops.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/host_memory.h"
#include "common/status.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/cpu_target.h"
#include "kernels/cpu/embed.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/kv_copy.h"
#include "kernels/cpu/matrix_parts.h"
#include "kernels/cpu/recurrent_copies.h"
#include "kernels/cpu/sample.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/host_step.h"

namespace stagecoach::kernels {
namespace {

int CoresOfThisProcess() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails if the machine has more cores than cpu_set_t holds.
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }
  return std::max(1, CPU_COUNT(&set));
}

// Version of the results, for Numerics(). Raise it with a change after which some result has other
// bits.
constexpr int kNumericsVersion = 3;

class CpuOps final : public Ops {
 public:
  explicit CpuOps(const CpuOptions& options)
      : kernels_(ChooseCpuKernels()),
        pool_(std::min(options.n_threads > 0 ? options.n_threads : CoresOfThisProcess(),
                       ThreadPool::kMaxThreads)) {}

  std::string Describe() const override {
    const int n = pool_.n_threads();
    return fmt::format("cpu ({}, {} {})", kernels_.target, n, n == 1 ? "thread" : "threads");
  }
  // Neither threads nor rows change a result.
  std::string Numerics() const override {
    return fmt::format("cpu-{} {}", kNumericsVersion, kernels_.target);
  }

  MemoryInUse Memory() const override {
    const HostMemory memory = ReadHostMemory();
    return {.total_bytes = memory.total_bytes, .free_bytes = memory.available_bytes};
  }

  absl::StatusOr<Buffer> Allocate(size_t bytes) override { return AllocateCpu(bytes); }
  absl::StatusOr<SharedBuffer> AllocateShared(size_t bytes) override {
    return AllocateSharedHost(bytes);
  }
  absl::StatusOr<Buffer> MapShared(int fd, size_t bytes) override {
    return MapSharedHost(fd, bytes);
  }
  void Settle(const Buffer& memory) override { UseHugePages(memory); }
  void Upload(const void* host, void* device, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void Download(const void* device, void* host, size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void ExportKv(const KvCopyArgs& args) override {
    if (status_.ok()) CpuExportKv(args, pool_);
  }
  void ImportKv(const KvCopyArgs& args) override {
    if (status_.ok()) CpuImportKv(args, pool_);
  }

  size_t MatrixBytes(int32_t rows, int32_t cols, DType dtype) const override {
    return PanelCount(static_cast<size_t>(rows)) * PanelBytes(static_cast<size_t>(cols), dtype);
  }
  bool Keeps(const Encoding& encoding, int32_t cols) const override {
    return KeepsEncoding(encoding, static_cast<size_t>(cols));
  }
  size_t MatrixBytes(std::span<const MatrixPart> parts, int32_t cols) const override {
    return PackedBytes(parts, static_cast<size_t>(cols));
  }
  absl::StatusOr<Matrix> MatrixOf(Buffer memory, std::span<const MatrixPart> parts,
                                  int32_t cols) override {
    SC_CHECK(!parts.empty() && cols > 0);
    Matrix matrix{.buffer = std::move(memory), .cols = cols};
    for (const MatrixPart& part : parts) {
      SC_CHECK(part.rows > 0 && matrix.rows % kPartRows == 0);
      SC_CHECK(Keeps(part.encoding, cols));
      matrix.rows += part.rows;
      if (!matrix.parts.empty() && matrix.parts.back().encoding == part.encoding &&
          !part.encoding.is_permuted) {
        matrix.parts.back().rows += part.rows;  // one GEMM instead of two
      } else {
        matrix.parts.push_back(part);
      }
    }
    return matrix;
  }
  void PackStored(Matrix& matrix, int32_t first_row, int32_t n_rows, const void* source) override {
    SC_CHECK(first_row >= 0 && n_rows >= 0);
    PackStoredPanels(matrix, static_cast<size_t>(first_row), static_cast<size_t>(n_rows), source,
                     pool_);
  }
  void PackInputOrder(Matrix& matrix, int32_t first_row, std::span<const int32_t> order) override {
    SC_CHECK(first_row >= 0);
    PackOrder(matrix, static_cast<size_t>(first_row), order);
  }
  void PackRows(Matrix& matrix, int32_t first_row, int32_t n_rows, const void* source,
                DType source_dtype) override {
    SC_CHECK(first_row >= 0 && n_rows >= 0);
    PackPanels(matrix, static_cast<size_t>(first_row), static_cast<size_t>(n_rows), source,
               source_dtype, pool_);
  }

  absl::StatusOr<std::unique_ptr<StepInputs>> NewStepInputs(const StepLimits& limits) override {
    return NewHostStepInputs(limits);
  }
  void BuildStep(const StepBatch& batch, StepInputs* inputs) override {
    BuildHostStep(batch, inputs);
  }

  void Embed(const EmbedArgs& args) override {
    if (status_.ok()) CpuEmbed(args, pool_);
  }
  void Gemm(const GemmArgs& args) override {
    if (args.n_rows > 0) Run(kernels_.gemm, args);
  }
  void Norm(const NormArgs& args) override { Run(kernels_.norm, args); }
  void RopeAppend(const RopeAppendArgs& args) override {
    SC_CHECK(args.head_dim % 2 == 0);
    SC_CHECK(args.rope == nullptr ||
             (args.rope->rotary_dim <= args.head_dim && args.rope->rotary_dim % 2 == 0));
    Run(kernels_.rope_append, args);
  }
  void HeadGemm(const HeadGemmArgs& args) override { Run(kernels_.head_gemm, args); }
  void LatentAppend(const LatentAppendArgs& args) override { Run(kernels_.latent_append, args); }
  void Attention(const AttentionArgs& args) override {
    SC_CHECK(args.head_dim % 2 == 0 && args.n_heads % args.n_kv_heads == 0);
    Run(kernels_.attention, args);
  }
  void Activate(const ActivationArgs& args) override { Run(kernels_.activation, args); }
  void Route(const RouteArgs& args) override {
    if (status_.ok()) CpuRoute(args, pool_);
  }
  void ExpertMlp(const ExpertMlpArgs& args) override {
    if (status_.ok()) status_ = CpuExpertMlp(args, kernels_, context_);
  }
  size_t ExpertScratchBytes(const ExpertShape& shape) const override {
    return CpuExpertScratchBytes(shape);
  }
  void Recurrence(const RecurrenceArgs& args) override { Run(kernels_.recurrence, args); }
  void SigmoidGate(const SigmoidGateArgs& args) override { Run(kernels_.sigmoid_gate, args); }
  void SplitGate(const SplitGateArgs& args) override {
    if (status_.ok()) CpuSplitGate(args, pool_);
  }
  void CopyStates(const CopyStatesArgs& args) override {
    if (status_.ok()) CpuCopyStates(args, pool_);
  }
  void GatherRows(const GatherRowsArgs& args) override {
    if (status_.ok()) CpuGatherRows(args, pool_);
  }
  void Convert(ConstAct from, Act to, int64_t n) override {
    if (status_.ok()) CpuConvert(from, to, n, pool_);
  }
  void Scale(float* x, int64_t n, const float* factor) override {
    if (status_.ok()) CpuScale(x, n, *factor, pool_);
  }
  void SoftCap(float* x, int64_t n, float cap) override {
    Run(kernels_.soft_cap, SoftCapArgs{.x = x, .n = n, .cap = cap});
  }
  void Sample(const SampleArgs& args) override {
    if (status_.ok()) status_ = CpuSample(args, kernels_.sample_vector, context_);
    if (status_.ok()) KeepSampled(args);
  }

  absl::Status Synchronize() override { return std::exchange(status_, absl::OkStatus()); }
  absl::Status Wait(uint64_t) override { return status_; }

 private:
  template <typename Args>
  void Run(CpuKernel<Args> kernel, const Args& args) {
    if (status_.ok()) status_ = kernel(args, context_);
  }

  const CpuKernels kernels_;
  ThreadPool pool_;
  Scratch scratch_;
  AttentionPlan attention_plan_;
  CpuContext context_{.pool = &pool_, .scratch = &scratch_, .attention_plan = &attention_plan_};
  absl::Status status_;  // the first failure since the last Synchronize
};

}  // namespace

std::unique_ptr<Ops> MakeCpuOps(const CpuOptions& options) {
  return std::make_unique<CpuOps>(options);
}

}  // namespace stagecoach::kernels
