#include "worker/stage/testing/late_ops.h"

#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/numbers.h"
#include "kernels/reference/reference_ops.h"

namespace stagecoach::worker {
namespace {

using namespace kernels;

class LateOps final : public Ops {
 public:
  LateOps(const std::atomic<bool>* lost, const std::atomic<bool>* held)
      : lost_(lost), held_(held) {}
  absl::Status CheckDevice() const override {
    const bool is_lost = lost_ != nullptr && *lost_;
    return is_lost ? absl::InternalError("the device is lost") : absl::OkStatus();
  }
  std::string Describe() const override { return ops_->Describe(); }
  std::string Numerics() const override { return ops_->Numerics(); }
  absl::StatusOr<Buffer> Allocate(size_t bytes) override { return ops_->Allocate(bytes); }
  void Upload(const void* host, void* device, size_t bytes) override {
    ops_->Upload(host, device, bytes);
  }
  void Download(const void* device, void* host, size_t bytes) override {
    ops_->Download(device, host, bytes);
  }
  void ExportKv(const KvCopyArgs& args) override { ops_->ExportKv(args); }
  void ImportKv(const KvCopyArgs& args) override { ops_->ImportKv(args); }
  MemoryInUse Memory() const override { return {.total_bytes = 1 << 30, .free_bytes = 1 << 29}; }
  bool has_own_memory() const override { return true; }
  size_t MatrixBytes(int32_t rows, int32_t cols, DType dtype) const override {
    return ops_->MatrixBytes(rows, cols, dtype);
  }
  void PackRows(Matrix& matrix, int32_t first_row, int32_t n_rows, const void* source,
                DType source_dtype) override {
    ops_->PackRows(matrix, first_row, n_rows, source, source_dtype);
  }
  absl::StatusOr<std::unique_ptr<StepInputs>> NewStepInputs(const StepLimits& limits) override {
    return ops_->NewStepInputs(limits);
  }
  void BuildStep(const StepBatch& batch, StepInputs* inputs) override {
    ops_->BuildStep(batch, inputs);
  }
  void Embed(const EmbedArgs& args) override { ops_->Embed(args); }
  void Gemm(const GemmArgs& args) override { ops_->Gemm(args); }
  void Norm(const NormArgs& args) override { ops_->Norm(args); }
  void RopeAppend(const RopeAppendArgs& args) override { ops_->RopeAppend(args); }
  void HeadGemm(const HeadGemmArgs& args) override { ops_->HeadGemm(args); }
  void LatentAppend(const LatentAppendArgs& args) override { ops_->LatentAppend(args); }
  void Attention(const AttentionArgs& args) override { ops_->Attention(args); }
  void Activate(const ActivationArgs& args) override { ops_->Activate(args); }
  void Route(const RouteArgs& args) override { ops_->Route(args); }
  void ExpertMlp(const ExpertMlpArgs& args) override { ops_->ExpertMlp(args); }
  size_t ExpertScratchBytes(const ExpertShape& shape) const override {
    return ops_->ExpertScratchBytes(shape);
  }
  void Recurrence(const RecurrenceArgs& args) override { ops_->Recurrence(args); }
  void SplitGate(const SplitGateArgs& args) override { ops_->SplitGate(args); }
  void SigmoidGate(const SigmoidGateArgs& args) override { ops_->SigmoidGate(args); }
  void CopyStates(const CopyStatesArgs& args) override { ops_->CopyStates(args); }
  void GatherRows(const GatherRowsArgs& args) override { ops_->GatherRows(args); }
  void Convert(kernels::ConstAct from, kernels::Act to, int64_t n) override {
    ops_->Convert(from, to, n);
  }
  void Scale(float* x, int64_t n, const float* factor) override { ops_->Scale(x, n, factor); }
  void SoftCap(float* x, int64_t n, float cap) override { ops_->SoftCap(x, n, cap); }
  void Sample(const SampleArgs& args) override { ops_->Sample(args); }
  absl::Status Rehearse(bool on) override {
    if (on) ++n_rehearsals_;
    return absl::OkStatus();
  }
  std::string Tuning() const override { return std::to_string(n_rehearsals_); }
  absl::Status UseTuning(std::string_view bytes) override {
    if (absl::SimpleAtoi(std::string(bytes), &n_rehearsals_)) return absl::OkStatus();
    return absl::InvalidArgumentError("this is no number");
  }
  absl::Status Synchronize() override {
    if (held_ != nullptr) held_->wait(true);
    return ops_->Synchronize();
  }

  absl::Status Failure() const override { return CheckDevice(); }
  bool runs_ahead() const override { return true; }
  uint64_t Mark() override { return ++n_marks_; }
  absl::Status Wait(uint64_t mark) override {
    // Varies the delay, so that the compute thread is sometimes a step ahead.
    for (uint64_t i = 0; i < mark * 37 % 200; ++i) std::this_thread::yield();
    return Failure();
  }

 private:
  const std::atomic<bool>* const lost_;
  const std::atomic<bool>* const held_;
  const std::unique_ptr<Ops> ops_ = MakeReferenceOps();
  uint64_t n_marks_ = 0;
  int n_rehearsals_ = 0;  // with those of the process whose tuning is used
};

}  // namespace

std::unique_ptr<kernels::Ops> MakeLateOps(const std::atomic<bool>* lost,
                                          const std::atomic<bool>* held) {
  return std::make_unique<LateOps>(lost, held);
}

}  // namespace stagecoach::worker
