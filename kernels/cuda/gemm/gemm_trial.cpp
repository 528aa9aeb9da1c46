#include "kernels/cuda/gemm/gemm_trial.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/gemm/gemm_trial_kernels.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kRuns = 5;
constexpr int kWarmUps = 1;
constexpr float kLongMs = 0.3f;
constexpr int kMoreWarmUps = 4;  // extra warm-up rounds if a run takes longer than kLongMs
constexpr size_t kMoreThanCaches = size_t{128} << 20;

// With CUDA_LAUNCH_BLOCKING the host waits for each kernel. The occupier kernel ends only after
// later kernels, so it would deadlock.
bool LaunchesBlock() {
  const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::string_view(value) != "0";
}

}  // namespace

GemmTrial::~GemmTrial() {
  if (begin_ != nullptr) cudaEventDestroy(begin_);
  if (end_ != nullptr) cudaEventDestroy(end_);
}

absl::Status GemmTrial::Begin() {
  if (begin_ == nullptr) {
    SC_RETURN_IF_ERROR(ToStatus(cudaEventCreateWithFlags(&begin_, 0), "no event"));
    SC_RETURN_IF_ERROR(ToStatus(cudaEventCreateWithFlags(&end_, 0), "no event"));
  }
  can_take_ = !LaunchesBlock();
  if (const absl::Status made = occupier_.Init(); !made.ok()) CannotTake(made);
  SC_ASSIGN_OR_RETURN(cache_filler_, AllocateDevice(kMoreThanCaches));
  SC_ASSIGN_OR_RETURN(n_different_, AllocateDevice(sizeof(uint32_t)));
  return absl::OkStatus();
}

absl::Status GemmTrial::End() {
  const absl::Status status =
      ToStatus(cudaStreamSynchronize(stream_->handle), "a rehearsal failed");
  cache_filler_ = x_ = y_ = other_y_ = n_different_ = Buffer{};
  return status;
}

absl::StatusOr<float> GemmTrial::Ms(const GemmArgs& args, const std::function<absl::Status()>& run,
                                    bool clear_caches, int32_t n_taken) {
  if (clear_caches) {
    // The first run loads the instructions, as in a step whose layers all run the same kernels.
    SC_RETURN_IF_ERROR(run());
    SC_RETURN_IF_ERROR(ToStatus(ClearCaches(args), "a rehearsal failed"));
  }
  if (n_taken > 0 && !Take(n_taken)) n_taken = 0;
  cudaEventRecord(begin_, stream_->handle);
  const absl::Status ran = run();
  cudaEventRecord(end_, stream_->handle);
  if (n_taken > 0) SC_RETURN_IF_ERROR(occupier_.Release(*stream_));
  SC_RETURN_IF_ERROR(ran);
  SC_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(end_), "a product failed"));
  float ms = 0;
  SC_RETURN_IF_ERROR(ToStatus(cudaEventElapsedTime(&ms, begin_, end_), "no time"));
  return ms;
}

// Clears the caches by reading: written lines would be written back while the GEMM runs. Then it
// reads the GEMM's inputs, and y if it is accumulated into, as the previous kernel of a step leaves
// them in cache.
cudaError_t GemmTrial::ClearCaches(const GemmArgs& args) {
  const auto words = [](const void* at, size_t bytes) {
    return WordsToRead{at, static_cast<int64_t>(bytes / sizeof(uint32_t))};
  };
  const auto rows = [&](ConstAct act, int32_t width) {
    return words(act.data, static_cast<size_t>(args.n_rows) * static_cast<size_t>(width) *
                               DTypeBytes(act.dtype));
  };
  const cudaError_t error =
      ReadWords(*stream_, words(cache_filler_.data.get(), cache_filler_.bytes), {});
  if (error != cudaSuccess) return error;
  return ReadWords(*stream_, rows(args.x, args.w->cols),
                   args.add_to_y ? rows(args.y, args.w->rows) : WordsToRead{});
}

// Tuning still works then, but its times ignore the cost of concurrent NCCL receives.
void GemmTrial::CannotTake(const absl::Status& why) {
  spdlog::warn("GEMM autotune assumes an idle GPU: {}", std::string(why.message()));
  can_take_ = false;
}

bool GemmTrial::Take(int32_t n) {
  const absl::Status taken = occupier_.Take(*stream_, n);
  if (!taken.ok()) CannotTake(taken);
  return taken.ok();
}

std::vector<float> GemmTrial::MediansMs(const GemmArgs& args,
                                        const std::vector<std::function<absl::Status()>>& runs) {
  std::vector<std::vector<float>> ms(runs.size());
  std::vector<bool> failed(runs.size());
  const int32_t n_taken =
      can_take_ ? stream_->n_all_multiprocessors - stream_->n_multiprocessors : 0;
  bool is_long = false;
  for (int round = 0; round < kWarmUps + (is_long ? kMoreWarmUps : 0) + kRuns; ++round) {
    const int n_ignored = kWarmUps + (is_long ? kMoreWarmUps : 0);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (failed[i]) continue;
      // A kernel that loads for the first time may wait for the whole device, so do not occupy SMs
      // yet.
      const absl::StatusOr<float> one = Ms(args, runs[i], !is_long, round == 0 ? 0 : n_taken);
      failed[i] = !one.ok();
      if (failed[i]) continue;
      if (round >= n_ignored) ms[i].push_back(*one);
      if (round == 0) is_long = is_long || *one > kLongMs;
    }
  }
  std::vector<float> medians;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (failed[i]) {
      medians.push_back(std::numeric_limits<float>::infinity());
      continue;
    }
    const auto middle = ms[i].begin() + static_cast<std::ptrdiff_t>(ms[i].size() / 2);
    std::nth_element(ms[i].begin(), middle, ms[i].end());
    medians.push_back(*middle);
  }
  return medians;
}

absl::Status GemmTrial::Grow(Buffer* buffer, size_t bytes) {
  if (buffer->bytes >= bytes) return absl::OkStatus();
  *buffer = Buffer{};
  SC_ASSIGN_OR_RETURN(*buffer, AllocateDevice(bytes));
  return absl::OkStatus();
}

absl::StatusOr<bool> GemmTrial::SameBits(const GemmArgs& args, const Way& a, const Way& b) {
  const int64_t n_x = int64_t{args.n_rows} * args.w->cols;
  const int64_t n_y = int64_t{args.n_rows} * args.w->rows;
  const size_t y_bytes = static_cast<size_t>(n_y) * DTypeBytes(args.y.dtype);
  SC_RETURN_IF_ERROR(Grow(&x_, static_cast<size_t>(n_x) * DTypeBytes(args.x.dtype)));
  SC_RETURN_IF_ERROR(Grow(&y_, y_bytes));
  SC_RETURN_IF_ERROR(Grow(&other_y_, y_bytes));
  const Act x(x_.data.get(), args.x.dtype);
  SC_RETURN_IF_ERROR(ToStatus(FillRandom(*stream_, x, n_x, 1), "a rehearsal failed"));
  GemmArgs trial = args;
  trial.x = x;
  // The initial y matters: a kernel may add it before or after a bias.
  const auto run = [&](const Buffer& memory, const Way& way) -> absl::Status {
    trial.y = Act(memory.data.get(), args.y.dtype);
    if (args.add_to_y) {
      SC_RETURN_IF_ERROR(ToStatus(FillRandom(*stream_, trial.y, n_y, 2), "a rehearsal failed"));
    }
    return way(trial);
  };
  SC_RETURN_IF_ERROR(run(y_, a));
  SC_RETURN_IF_ERROR(run(other_y_, b));
  auto* const n_different = n_different_.As<uint32_t>();
  cudaMemsetAsync(n_different, 0, sizeof(uint32_t), stream_->handle);
  SC_RETURN_IF_ERROR(ToStatus(CountDifferent(*stream_, y_.data.get(), other_y_.data.get(),
                                             static_cast<int64_t>(y_bytes / 2), n_different),
                              "a rehearsal failed"));
  uint32_t different = 1;
  cudaMemcpyAsync(&different, n_different, sizeof(different), cudaMemcpyDeviceToHost,
                  stream_->handle);
  SC_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream_->handle), "a rehearsal failed"));
  return different == 0;
}

}  // namespace stagecoach::kernels::cuda
