#include "kernels/cuda/cuda_ops.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "common/check.h"
#include "common/env_switch.h"
#include "common/laps.h"
#include "common/model/device_support.h"
#include "common/mutex.h"
#include "common/status.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/head_gemm.h"
#include "kernels/cuda/attention/kv_copy.h"
#include "kernels/cuda/attention/latents.h"
#include "kernels/cuda/attention/rope_append.h"
#include "kernels/cuda/attention/wide_attention.h"
#include "kernels/cuda/device/compiled_for.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/device/disturbance.h"
#include "kernels/cuda/device/host_ring.h"
#include "kernels/cuda/device/parallel_copy.h"
#include "kernels/cuda/device/side_copies.h"
#include "kernels/cuda/device/vmm_memory.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/elementwise/norm.h"
#include "kernels/cuda/experts/expert_tables.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/gemm/biased_gemm.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/one_output_gemm.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/l2/kv_places.h"
#include "kernels/cuda/l2/l2_measure.h"
#include "kernels/cuda/packed/packed_experts.h"
#include "kernels/cuda/packed/packed_matrices.h"
#include "kernels/cuda/recurrent/gates.h"
#include "kernels/cuda/recurrent/recurrence.h"
#include "kernels/cuda/sample/sample_rows.h"
#include "kernels/cuda/step/step_builder.h"

namespace stagecoach::kernels {
namespace {

using cuda::ToStatus;

class CudaRecording final : public Recording {
 public:
  // `launch` queues the graph. It latches a failure like the launch of a kernel.
  CudaRecording(cudaGraphExec_t graph, std::function<void(cudaGraphExec_t)> launch)
      : graph_(graph), launch_(std::move(launch)) {}
  ~CudaRecording() override { cudaGraphExecDestroy(graph_); }
  void Replay() override { launch_(graph_); }

 private:
  const cudaGraphExec_t graph_;
  const std::function<void(cudaGraphExec_t)> launch_;
};

// Version of the results, for Numerics(). Raise it with a change after which some result has other
// bits.
constexpr int kNumericsVersion = 6;

class CudaOps final : public Ops {
 public:
  explicit CudaOps(const CudaOptions& options)
      : options_(options),
        disturbance_(options.disturbance_seed),
        packed_(&stream_, options.batch_invariant),
        expert_tables_(&stream_, [this](const void* host, void* device,
                                        size_t bytes) { return UploadPiece(host, device, bytes); }),
        packed_experts_(&stream_, &packed_, &expert_tables_, options.batch_invariant),
        step_builder_(&stream_, &ring_),
        sample_rows_(&stream_, &ring_, &disturbance_) {}

  ~CudaOps() override {
    cudaSetDevice(options_.device);
    if (stream_.handle != nullptr) cudaStreamSynchronize(stream_.handle);
    for (const cudaEvent_t event : marks_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    gemms_.reset();
    if (stream_.handle != nullptr) cudaStreamDestroy(stream_.handle);
  }

  absl::Status Init() {
    Laps laps;
    int n_devices = 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
      return absl::UnavailableError(
          "no GPU that this process may use (stagecoach doctor says what is missing)");
    }
    if (options_.device < 0 || options_.device >= n_devices) {
      return absl::UnavailableError(
          fmt::format("no GPU {}: there are 0 to {}", options_.device, n_devices - 1));
    }
    laps.End("driver");
    SC_RETURN_IF_ERROR(ToStatus(cudaSetDevice(options_.device), "the GPU cannot be used"));
    laps.End("context and kernels");
    SC_RETURN_IF_ERROR(ToStatus(cudaGetDeviceProperties(&properties_, options_.device),
                                "the GPU does not answer"));
    if (properties_.major < 8) {
      return absl::FailedPreconditionError(
          fmt::format("{} has compute capability {}.{}; 8.0 or later is needed", properties_.name,
                      properties_.major, properties_.minor));
    }
    stream_.n_multiprocessors = properties_.multiProcessorCount;
    stream_.n_all_multiprocessors = properties_.multiProcessorCount;
    stream_.block_shared_bytes = properties_.sharedMemPerBlockOptin;
    SC_RETURN_IF_ERROR(
        ToStatus(cudaStreamCreateWithFlags(&stream_.handle, cudaStreamNonBlocking), "no stream"));
    SC_RETURN_IF_ERROR(ToStatus(cuda::FindCompiledFor(stream_.handle, &compiled_for_),
                                "this program has no code for the GPU"));
    stream_.overlaps = compiled_for_.has_dependent_launch();
    stream_.is_hopper = compiled_for_.has_hopper;
    // Off: to compare.
    stream_.groups_gemms = stream_.is_hopper && !IsSwitched("STAGECOACH_GROUPED_GEMM", "off");
    for (cudaEvent_t& event : marks_) {
      SC_RETURN_IF_ERROR(
          ToStatus(cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming),
                   "no event"));
    }
    // Batch-invariant mode fixes the split of the work, so it cannot follow the L2 partitions.
    if (!options_.batch_invariant) stream_.l2 = cuda::MeasureL2Sides(stream_);
    laps.End("stream and L2");
    SC_RETURN_IF_ERROR(ring_.Init(&stream_));
    SC_RETURN_IF_ERROR(sample_rows_.Init());
    SC_ASSIGN_OR_RETURN(convert_scratch_, cuda::AllocateDevice(cuda::HostRing::kSegmentBytes));
    SC_ASSIGN_OR_RETURN(n_routed_, cuda::AllocateDevice(sizeof(int32_t)));
    SC_RETURN_IF_ERROR(
        ToStatus(cudaMemsetAsync(n_routed_.data.get(), 0, sizeof(int32_t), stream_.handle),
                 "cannot clear memory"));
    laps.End("staging memory");
    SC_ASSIGN_OR_RETURN(
        gemms_, cuda::Gemms::Create(&stream_, {.batch_invariant = options_.batch_invariant}));
    laps.End("GEMM library");
    spdlog::debug("GPU {} is ready after {}, L2 partitions {}", options_.device, laps.ToString(),
                  stream_.l2.known() ? "known" : "not known");
    return absl::OkStatus();
  }

  std::string Describe() const override {
    return fmt::format("cuda:{} ({}, compute capability {}.{}{})", options_.device,
                       properties_.name, properties_.major, properties_.minor,
                       options_.batch_invariant ? ", batch-invariant" : "");
  }
  std::string Numerics() const override {
    // Code for another architecture may add in another order.
    const int32_t own = 100 * properties_.major + 10 * properties_.minor;
    const std::string code =
        compiled_for_.architecture == own && compiled_for_.has_hopper == (own == 900)
            ? ""
            : fmt::format(" compute_{}", compiled_for_.architecture / 10);
    return fmt::format("cuda-{} sm_{}{}{} {}{}{}{}", kNumericsVersion, properties_.major,
                       properties_.minor, code, gemms_->Numerics(),
                       stream_.groups_gemms ? " grouped" : "",
                       GpusKeepAnyExperts() ? " packed-experts" : "",
                       options_.batch_invariant ? " batch-invariant" : "");
  }

  // CUDA returns sticky errors from every later call: illegal address or instruction, kernel
  // assertion or timeout, uncorrectable memory or NVLink error. It returns other errors only once,
  // so the first call here consumes them.
  absl::Status CheckDevice() const override {
    cudaSetDevice(options_.device);
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    cudaGetLastError();
    return ToStatus(cudaMemGetInfo(&free, &total), "the GPU is lost to this process");
  }

  MemoryInUse Memory() const override {
    cudaSetDevice(options_.device);
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return {.total_bytes = total,
            .free_bytes = free - std::min<uint64_t>(free, options_.reserved_bytes)};
  }
  bool has_own_memory() const override { return true; }
  DType ActivationDType(DType model) const override { return model; }
  DType WeightDType(DType, DType model) const override { return model; }

  absl::StatusOr<Buffer> Allocate(size_t bytes) override {
    cudaSetDevice(options_.device);
    SC_ASSIGN_OR_RETURN(Buffer buffer, cuda::AllocateDevice(bytes));
    SC_RETURN_IF_ERROR(
        ToStatus(disturbance_.Fill(stream_, buffer.data.get(), bytes), "cannot clear memory"));
    return buffer;
  }
  absl::StatusOr<SharedBuffer> AllocateShared(size_t bytes) override {
    cudaSetDevice(options_.device);
    SC_ASSIGN_OR_RETURN(SharedBuffer shared, cuda::AllocateVmm(options_.device, bytes));
    SC_RETURN_IF_ERROR(ToStatus(disturbance_.Fill(stream_, shared.buffer.data.get(), bytes),
                                "cannot clear memory"));
    return shared;
  }
  absl::StatusOr<Buffer> MapShared(int fd, size_t bytes) override {
    cudaSetDevice(options_.device);
    return cuda::MapVmm(options_.device, fd, bytes);
  }
  absl::StatusOr<std::string> AdoptKv(const Buffer& memory, std::string_view notes) override {
    cudaSetDevice(options_.device);
    return kv_places_.Adopt(&stream_, memory, notes);
  }
  absl::StatusOr<Buffer> AllocateHost(size_t bytes) override {
    cudaSetDevice(options_.device);
    return cuda::AllocatePinned(bytes);
  }

  void Upload(const void* host, void* device, size_t bytes) override {
    Do([&]() -> absl::Status {
      for (size_t done = 0; done < bytes;) {
        const size_t n = std::min(bytes - done, cuda::HostRing::kSegmentBytes);
        SC_RETURN_IF_ERROR(UploadPiece(static_cast<const char*>(host) + done,
                                       static_cast<char*>(device) + done, n));
        done += n;
      }
      return absl::OkStatus();
    });
  }
  void Download(const void* device, void* host, size_t bytes) override {
    DownloadLater(device, host, bytes);
    Do([&] { return ToStatus(cudaStreamSynchronize(stream_.handle), "the GPU failed"); });
  }
  void DownloadLater(const void* device, void* host, size_t bytes) override {
    Do([&] {
      return ToStatus(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_.handle),
                      "cannot copy from the GPU");
    });
  }
  void ExportKv(const KvCopyArgs& args) override { CopyKv("ExportKv", &cuda::ExportKv, args); }
  void ImportKv(const KvCopyArgs& args) override { CopyKv("ImportKv", &cuda::ImportKv, args); }
  void CopyBeside(std::span<const HostCopy> copies) override {
    Do([&] { return side_copies_.Copy(stream_, copies); });
  }
  void JoinCopies() override {
    Do([&] { return side_copies_.Join(stream_); });
  }

  size_t MatrixBytes(int32_t rows, int32_t cols, DType dtype) const override {
    return static_cast<size_t>(rows) * static_cast<size_t>(cols) * DTypeBytes(dtype);
  }
  void PackRows(Matrix& matrix, int32_t first_row, int32_t n_rows, const void* source,
                DType source_dtype) override {
    SC_CHECK(first_row >= 0 && n_rows >= 0 && first_row + n_rows <= matrix.rows);
    const int64_t first = int64_t{first_row} * matrix.cols, n = int64_t{n_rows} * matrix.cols;
    char* const to =
        matrix.buffer.As<char>() + first * static_cast<int64_t>(DTypeBytes(matrix.dtype));
    if (source_dtype == matrix.dtype) {
      Upload(source, to, static_cast<size_t>(n) * DTypeBytes(matrix.dtype));
      return;
    }
    Do([&]() -> absl::Status {
      const auto from_bytes = static_cast<int64_t>(DTypeBytes(source_dtype));
      const auto to_bytes = static_cast<int64_t>(DTypeBytes(matrix.dtype));
      const int64_t most = static_cast<int64_t>(cuda::HostRing::kSegmentBytes) / from_bytes;
      for (int64_t done = 0; done < n; done += most) {
        const int64_t piece = std::min(most, n - done);
        SC_RETURN_IF_ERROR(UploadPiece(static_cast<const char*>(source) + done * from_bytes,
                                       convert_scratch_.data.get(),
                                       static_cast<size_t>(piece * from_bytes)));
        SC_RETURN_IF_ERROR(
            ToStatus(cuda::Convert(stream_, {convert_scratch_.data.get(), source_dtype},
                                   {to + done * to_bytes, matrix.dtype}, piece),
                     "cannot convert weights"));
      }
      return absl::OkStatus();
    });
  }

  bool Keeps(const Encoding& encoding, int32_t cols) const override {
    return GpusKeep(encoding, cols);
  }
  bool KeepsExperts(const Encoding& encoding, int32_t cols) const override {
    return GpusKeepExperts(encoding, cols);
  }
  size_t MatrixBytes(std::span<const MatrixPart> parts, int32_t cols) const override {
    return cuda::PackedMatrices::Bytes(parts, cols);
  }
  absl::StatusOr<Matrix> MatrixOf(Buffer memory, std::span<const MatrixPart> parts,
                                  int32_t cols) override {
    cudaSetDevice(options_.device);
    return packed_.MatrixOf(std::move(memory), parts, cols);
  }
  void PackStored(Matrix& matrix, int32_t first_row, int32_t n_rows, const void* source) override {
    SC_CHECK(first_row >= 0 && n_rows >= 0 && first_row + n_rows <= matrix.rows);
    Do([&]() -> absl::Status {
      const size_t row_bytes = packed_.StoredRowBytes(matrix, first_row);
      const auto most = static_cast<int32_t>(cuda::HostRing::kSegmentBytes / row_bytes);
      for (int32_t done = 0; done < n_rows; done += most) {
        const int32_t n = std::min(most, n_rows - done);
        SC_RETURN_IF_ERROR(
            UploadPiece(static_cast<const char*>(source) + static_cast<size_t>(done) * row_bytes,
                        convert_scratch_.data.get(), static_cast<size_t>(n) * row_bytes));
        SC_RETURN_IF_ERROR(packed_.Pack(matrix, first_row + done, n, convert_scratch_.data.get()));
      }
      return absl::OkStatus();
    });
  }
  void PackInputOrder(Matrix& matrix, int32_t first_row, std::span<const int32_t> order) override {
    SC_CHECK(order.size() == static_cast<size_t>(matrix.cols));
    Upload(order.data(), packed_.OrderOf(matrix, first_row), order.size_bytes());
  }

  size_t AttentionScratchBytes(const StepLimits& limits) const override {
    return cuda::WantedScratchBytes(stream_, limits, options_.batch_invariant);
  }
  absl::StatusOr<std::unique_ptr<StepInputs>> NewStepInputs(const StepLimits& limits) override {
    cudaSetDevice(options_.device);
    SC_ASSIGN_OR_RETURN(std::unique_ptr<StepInputs> inputs,
                        cuda::NewCudaStepInputs(stream_, limits, options_.batch_invariant));
    return inputs;
  }
  void BuildStep(const StepBatch& batch, StepInputs* inputs) override {
    Do([&] { return step_builder_.Build(batch, static_cast<cuda::CudaStepInputs*>(inputs)); });
  }

  void Embed(const EmbedArgs& args) override {
    if (args.table != nullptr && !args.table->parts.empty()) {
      Do([&] { return packed_.Embed(args); });
      return;
    }
    Launch("Embed", [&] { return cuda::Embed(stream_, args); });
  }
  void Gemm(const GemmArgs& args) override {
    if (args.n_rows == 0) return;
    if (!args.w->parts.empty()) {
      Do([&] { return packed_.Gemm(args, *gemms_); });
      return;
    }
    if (args.w->rows == 1) {
      Launch("Gemm", [&] { return cuda::OneOutputGemm(stream_, args); });
      return;
    }
    Do([&] { return cuda::BiasedGemm(stream_, *gemms_, args); });
  }
  void GemmActivate(const GemmArgs& gemm, const ActivationArgs& activation) override {
    if (gemm.n_rows == 0) return;
    if (!gemm.w->parts.empty()) {
      if (!PackedFused(nullptr, gemm, &activation)) Ops::GemmActivate(gemm, activation);
      return;
    }
    // With few rows the GEMM is bound by reading the weights, and a separate activation kernel
    // would delay the next GEMM.
    if (!options_.batch_invariant && cuda::HasSkinnyGatedGemm(gemm, activation)) {
      Launch("GemmActivate", [&] { return cuda::SkinnyGatedGemm(stream_, gemm, activation); });
      return;
    }
    bool is_done = false;
    Do([&]() -> absl::Status {
      SC_ASSIGN_OR_RETURN(is_done, gemms_->RunGated(gemm, activation));
      return absl::OkStatus();
    });
    if (!is_done) Ops::GemmActivate(gemm, activation);
  }
  void Norm(const NormArgs& args) override {
    Launch("Norm", [&] { return cuda::Norm(stream_, args); });
  }
  // With few rows, a separate norm kernel takes longer than repeating the norm in every CTA of the
  // GEMM.
  void NormGemm(const NormArgs& norm, const GemmArgs& gemm) override {
    if (!options_.batch_invariant && cuda::HasNormedSkinnyGemm(norm, gemm)) {
      Launch("NormGemm", [&] { return cuda::NormedSkinnyGemm(stream_, norm, gemm); });
      return;
    }
    if (!PackedFused(&norm, gemm, nullptr)) Ops::NormGemm(norm, gemm);
  }
  void NormGemmActivate(const NormArgs& norm, const GemmArgs& gemm,
                        const ActivationArgs& activation) override {
    if (!options_.batch_invariant && cuda::HasNormedSkinnyGemm(norm, gemm) &&
        cuda::HasSkinnyGatedGemm(gemm, activation)) {
      Launch("NormGemmActivate",
             [&] { return cuda::NormedSkinnyGatedGemm(stream_, norm, gemm, activation); });
      return;
    }
    if (!PackedFused(&norm, gemm, &activation)) Ops::NormGemmActivate(norm, gemm, activation);
  }
  void RopeAppend(const RopeAppendArgs& args) override {
    if (disturbance_.is_on() && args.kv_of_row != KvOfRow::kNone) {
      Launch("RopeAppend", [&] { return disturbance_.FillNewBlocks(stream_, args); });
    }
    Launch("RopeAppend", [&] {
      return cuda::RopeAppend(stream_, args, SidesOf(args.kv, args.n_kv_heads, args.head_dim));
    });
  }
  void HeadGemm(const HeadGemmArgs& args) override {
    Launch("HeadGemm", [&] { return cuda::HeadGemm(stream_, args); });
  }
  void LatentAppend(const LatentAppendArgs& args) override {
    Launch("LatentAppend", [&] { return cuda::LatentAppend(stream_, args); });
  }
  void Attention(const AttentionArgs& args) override {
    Launch("Attention", [&] {
      const auto& inputs = static_cast<const cuda::CudaStepInputs&>(*args.step);
      const cuda::AttentionPlan& plan = inputs.plans[static_cast<size_t>(args.group)];
      const cuda::AttentionSetup& setup = inputs.setups[static_cast<size_t>(args.group)];
      if (setup.is_wide()) {
        return cuda::WideAttention(stream_, args, plan, setup, inputs.attention_memory);
      }
      // The other kernels' plans are for the limits' heads.
      const GroupLimits& group = inputs.limits.groups[static_cast<size_t>(args.group)];
      if (!HasUsualHeads(inputs.limits, group) ||
          !cuda::HasAttentionTile(args.qkv.dtype, args.head_dim)) {
        return cuda::GenericAttention(stream_, args, plan);
      }
      return cuda::TileAttention(stream_, args, plan, setup, inputs.attention_memory,
                                 inputs.gathered, SidesOf(args.kv, args.n_kv_heads, args.head_dim));
    });
  }
  void Activate(const ActivationArgs& args) override {
    Launch("Activate", [&] { return cuda::Activate(stream_, args); });
  }
  // With one row, each of the three takes as long as to start a kernel.
  void NormRoute(const NormArgs& norm, const GemmArgs& gemm, const RouteArgs& route) override {
    if (!options_.batch_invariant && cuda::HasNormRoute(norm, gemm, route)) {
      Launch("NormRoute",
             [&] { return cuda::NormRoute(stream_, norm, gemm, route, n_routed_.As<int32_t>()); });
      return;
    }
    Ops::NormRoute(norm, gemm, route);
  }
  void Route(const RouteArgs& args) override {
    Launch("Route", [&] { return cuda::Route(stream_, args); });
  }
  void ExpertMlp(const ExpertMlpArgs& args) override {
    Do([&]() -> absl::Status {
      if (args.clears_out) {
        const size_t n = static_cast<size_t>(args.n_tokens) * size_t(args.down.front().rows);
        SC_RETURN_IF_ERROR(
            ToStatus(cudaMemsetAsync(args.out, 0, n * sizeof(float), stream_.handle), "ExpertMlp"));
      }
      if (!args.up.front().parts.empty() || !args.down.front().parts.empty()) {
        return packed_experts_.Run(args);
      }
      SC_ASSIGN_OR_RETURN(const void* const* up, expert_tables_.TableOf(args.up));
      SC_ASSIGN_OR_RETURN(const void* const* down, expert_tables_.TableOf(args.down));
      return ToStatus(cuda::ExpertMlp(stream_, args, up, down, options_.batch_invariant),
                      "ExpertMlp");
    });
  }
  // The dtype is unknown here, so this returns the size for the widest one.
  size_t ExpertScratchBytes(const ExpertShape& shape) const override {
    return cuda::ExpertScratchBytes(shape, DType::kF32);
  }
  void Recurrence(const RecurrenceArgs& args) override {
    Launch("Recurrence", [&] {
      const auto& inputs = static_cast<const cuda::CudaStepInputs&>(*args.step);
      SC_CHECK(inputs.limits.has_states);
      return cuda::Recurrence(stream_, args, inputs.recurrence());
    });
  }
  void CopyStates(const CopyStatesArgs& args) override {
    for (const StateCopy& copy : args.copies) {
      Launch("CopyStates", [&] {
        return cudaMemcpyAsync(args.states + copy.to * args.n_elements,
                               args.states + copy.from * args.n_elements,
                               static_cast<size_t>(args.n_elements) * sizeof(float),
                               cudaMemcpyDeviceToDevice, stream_.handle);
      });
    }
  }
  void SplitGate(const SplitGateArgs& args) override {
    Launch("SplitGate", [&] { return cuda::SplitGate(stream_, args); });
  }
  void SigmoidGate(const SigmoidGateArgs& args) override {
    Launch("SigmoidGate", [&] { return cuda::SigmoidGate(stream_, args); });
  }
  void GatherRows(const GatherRowsArgs& args) override {
    Launch("GatherRows", [&] { return cuda::GatherRows(stream_, args); });
  }
  void Convert(ConstAct from, Act to, int64_t n) override {
    Launch("Convert", [&] { return cuda::Convert(stream_, from, to, n); });
  }
  void Scale(float* x, int64_t n, const float* factor) override {
    Launch("Scale", [&] { return cuda::Scale(stream_, x, n, factor); });
  }
  void SoftCap(float* x, int64_t n, float cap) override {
    Launch("SoftCap", [&] { return cuda::SoftCap(stream_, x, n, cap); });
  }
  void Sample(const SampleArgs& args) override {
    Do([&] { return sample_rows_.Run(args); });
  }

  absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<void()>& calls) override {
    SC_RETURN_IF_ERROR(Failure());
    cudaSetDevice(options_.device);
    SC_RETURN_IF_ERROR(ToStatus(
        cudaStreamBeginCapture(stream_.handle, cudaStreamCaptureModeThreadLocal), "cannot record"));
    calls();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_.handle, &graph);
    const absl::Cleanup destroy = [&] {
      if (graph != nullptr) cudaGraphDestroy(graph);
    };
    SC_RETURN_IF_ERROR(Failure());
    SC_RETURN_IF_ERROR(ToStatus(ended, "cannot record"));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
    SC_RETURN_IF_ERROR(ToStatus(made, "cannot record"));
    std::unique_ptr<Recording> recording =
        std::make_unique<CudaRecording>(executable, [this](cudaGraphExec_t recorded) {
          Launch("a recorded step", [&] { return cudaGraphLaunch(recorded, stream_.handle); });
        });
    // Without the upload, the first replay allocates, and that may wait for all work on the GPU.
    SC_RETURN_IF_ERROR(ToStatus(cudaGraphUpload(executable, stream_.handle), "cannot record"));
    return recording;
  }
  absl::Status Rehearse(bool on) override {
    cudaSetDevice(options_.device);
    return gemms_->SetTuning(on);
  }
  std::string Tuning() const override { return gemms_->Choices(); }
  absl::Status UseTuning(std::string_view bytes) override { return gemms_->UseChoices(bytes); }

  absl::Status Synchronize() override {
    cudaSetDevice(options_.device);
    absl::Status done = ToStatus(cudaStreamSynchronize(stream_.handle), "the GPU failed");
    if (done.ok()) done = side_copies_.Synchronize();
    const MutexLock lock(mutex_);
    absl::Status failure = std::exchange(status_, absl::OkStatus());
    return failure.ok() ? done : failure;
  }

  NativeQueue native_queue() const override {
    return {.stream = stream_.handle, .device = options_.device};
  }
  void LeaveMultiprocessors(int32_t n) override {
    stream_.n_multiprocessors = std::max(1, properties_.multiProcessorCount - n);
  }

  absl::Status Failure() const override {
    const MutexLock lock(mutex_);
    return status_;
  }
  bool runs_ahead() const override { return true; }
  uint64_t Mark() override {
    const uint64_t mark = ++n_marks_;
    Do([&] {
      return ToStatus(cudaEventRecord(marks_[mark % kMarks], stream_.handle), "the GPU failed");
    });
    return mark;
  }
  absl::Status Wait(uint64_t mark) override {
    cudaSetDevice(options_.device);
    SC_RETURN_IF_ERROR(Failure());
    return ToStatus(cudaEventSynchronize(marks_[mark % kMarks]), "the GPU failed");
  }

 private:
  cuda::KvSides SidesOf(const KvLayer& kv, int32_t n_kv_heads, int32_t head_dim) const {
    return kv_places_.SidesOf(stream_, kv, n_kv_heads, head_dim);
  }
  template <typename Call>
  void Do(const Call& call) {
    if (!Failure().ok()) return;
    cudaSetDevice(options_.device);
    absl::Status status = ToStatus(disturbance_.Delay(stream_), "the GPU failed");
    if (status.ok()) status = call();
    if (!status.ok()) {
      const MutexLock lock(mutex_);
      status_ = std::move(status);
    }
  }
  template <typename Call>
  void Launch(const char* what, const Call& call) {
    Do([&] { return ToStatus(call(), what); });
  }

  // See PackedMatrices::Fused.
  bool PackedFused(const NormArgs* norm, const GemmArgs& gemm, const ActivationArgs* activation) {
    if (gemm.w->parts.empty()) return false;
    bool is_done = false;
    Do([&]() -> absl::Status {
      SC_ASSIGN_OR_RETURN(is_done, packed_.Fused(norm, gemm, activation, *gemms_));
      return absl::OkStatus();
    });
    return is_done;
  }

  // Launches `copy` with its list in memory that the GPU reads.
  void CopyKv(const char* what,
              cudaError_t (*copy)(const cuda::Stream&, const KvCopyArgs&, const cuda::KvSides&),
              KvCopyArgs args) {
    if (args.copies.empty()) return;
    Do([&]() -> absl::Status {
      SC_ASSIGN_OR_RETURN(void* const staged, ring_.Take(args.copies.size_bytes()));
      std::memcpy(staged, args.copies.data(), args.copies.size_bytes());
      args.copies = {static_cast<const KvBlockCopy*>(staged), args.copies.size()};
      return ToStatus(copy(stream_, args, SidesOf(args.kv, args.n_kv_heads, args.head_dim)), what);
    });
  }

  absl::Status UploadPiece(const void* host, void* device, size_t bytes) {
    SC_ASSIGN_OR_RETURN(void* const staged, ring_.Take(bytes));
    copier_.Copy(host, staged, bytes);
    return ToStatus(cudaMemcpyAsync(device, staged, bytes, cudaMemcpyHostToDevice, stream_.handle),
                    "cannot copy to the GPU");
  }

  const CudaOptions options_;
  cuda::Disturbance disturbance_;
  cudaDeviceProp properties_{};
  cuda::Stream stream_;
  cuda::CompiledFor compiled_for_;
  cuda::HostRing ring_;
  cuda::ParallelCopy copier_;
  cuda::SideCopies side_copies_;
  Buffer convert_scratch_;  // weight rows that wait for conversion to the matrix dtype
  Buffer n_routed_;         // [1] int32: see cuda::NormRoute
  std::unique_ptr<cuda::Gemms> gemms_;
  cuda::PackedMatrices packed_;
  cuda::ExpertTables expert_tables_;
  cuda::PackedExperts packed_experts_;
  cuda::StepBuilder step_builder_;
  cuda::SampleRowStager sample_rows_;
  cuda::KvPlaces kv_places_;
  std::array<cudaEvent_t, kMarks> marks_{};
  uint64_t n_marks_ = 0;

  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first failure since the last Synchronize
};

}  // namespace

absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options) {
  auto ops = std::make_unique<CudaOps>(options);
  SC_RETURN_IF_ERROR(ops->Init());
  return ops;
}

}  // namespace stagecoach::kernels
