// What the benchmarks of the GPU operations share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/device/occupier.h"
#include "kernels/kv_fp8_row.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

inline constexpr DType kType = DType::kBF16;
inline constexpr double kElement = 2;          // bytes
inline constexpr int32_t kUsualBlocks = 2048;  // KV blocks: 32,768 tokens
// Larger than the caches: consecutive measurements use different memory.
inline constexpr size_t kColdBytes = size_t{400} << 20;

class Bench {
 public:
  explicit Bench(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {
    SC_CHECK(occupier_.Init().ok());
  }

  // From now on, other kernels occupy `n` SMs during every measurement.
  void Take(int32_t n) { n_taken_ = n; }

  Ops& ops() { return *ops_; }

  static std::vector<float> Noise(size_t n) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    std::vector<float> values(n);
    for (float& value : values) value = normal(random);
    return values;
  }

  // Random values instead of zeros, because zeros run faster.
  Buffer Random(size_t n_elements, DType dtype) {
    return Filled(*ops_->NewMatrix(NPieces(n_elements), kPiece, dtype));
  }
  // n_heads: of all blocks of a cache
  Buffer RandomKv(size_t n_heads, int32_t head_dim, DType dtype) {
    const size_t head_bytes = KvBlockBytes(dtype, 1, head_dim, 1);
    if (dtype == DType::kFp8) return RandomFp8Kv(n_heads, static_cast<size_t>(head_dim));
    const int32_t n = NPieces(n_heads * head_bytes / DTypeBytes(dtype));
    return Filled({*ops_->AllocateKv(ops_->MatrixBytes(n, kPiece, dtype)), dtype, n, kPiece});
  }
  Matrix RandomMatrix(int32_t rows, int32_t cols) {
    return {Random(static_cast<size_t>(rows) * static_cast<size_t>(cols), kType), kType, rows,
            cols};
  }

  // Seconds per call, if `calls` run one after another in a recording (CUDA graph).
  double Seconds(const std::vector<std::function<void()>>& calls) {
    const auto all = [&] {
      for (const auto& call : calls) call();
    };
    SC_CHECK(ops_->Rehearse(true).ok());
    calls.front()();
    SC_CHECK(ops_->Rehearse(false).ok());
    all();
    const auto recording = ops_->Record(all);
    SC_CHECK(recording.ok() && *recording != nullptr);
    return MedianSeconds([&] { (*recording)->Replay(); }) / static_cast<double>(calls.size());
  }
  // Seconds per call, for many calls in a row.
  double SecondsInRow(const std::function<void()>& call) {
    constexpr int kCalls = 20;
    return MedianSeconds([&] {
             for (int i = 0; i < kCalls; ++i) call();
           }) /
           kCalls;
  }
  double MedianSeconds(const std::function<void()>& run) {
    SC_CHECK(ops_->Synchronize().ok());
    std::vector<double> seconds;
    const cuda::Stream stream{.handle = static_cast<cudaStream_t>(ops_->native_queue().stream)};
    for (int i = 0; i < 7; ++i) {
      if (n_taken_ > 0) SC_CHECK(occupier_.Take(stream, n_taken_).ok());
      SC_CHECK(ops_->Synchronize().ok());
      const auto start = std::chrono::steady_clock::now();
      run();
      SC_CHECK(ops_->Synchronize().ok());
      seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      if (n_taken_ > 0) SC_CHECK(occupier_.Release(stream).ok());
    }
    std::nth_element(seconds.begin(), seconds.begin() + 3, seconds.end());
    return seconds[3];
  }

  void Line(const std::string& name, double seconds, double bytes, double flops) const {
    std::string line = fmt::format("{:<44} {:9.1f} us", name, seconds * 1e6);
    line += fmt::format("  {:7.0f} GB/s ({:3.0f}%)", bytes / seconds * 1e-9,
                        100 * bytes / seconds / bandwidth_);
    if (flops > 0) {
      line += fmt::format("  {:6.1f} TFLOP/s ({:3.0f}%)", flops / seconds * 1e-12,
                          100 * flops / seconds / rate_);
    }
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

  // The device's limits: the driver's copy, counting bytes read and written, and a large GEMM.
  void MeasurePeaks() {
    constexpr size_t kBytes = size_t{2} << 30;
    const Buffer from = Random(kBytes / 4, DType::kF32), to = *ops_->Allocate(kBytes);
    const double copy = MedianSeconds([&] {
      const auto error =
          cudaMemcpy(to.data.get(), from.data.get(), kBytes, cudaMemcpyDeviceToDevice);
      SC_CHECK(error == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    });
    bandwidth_ = 2.0 * static_cast<double>(kBytes) / copy;
    const Matrix w = RandomMatrix(8192, 8192);
    const Buffer x = Random(8192 * 8192, kType), y = Random(8192 * 8192, kType);
    const double product = Seconds({[&] {
      ops_->Gemm({.x = {x.data.get(), kType},
                  .w = &w,
                  .bias = nullptr,
                  .y = {y.data.get(), kType},
                  .n_rows = 8192,
                  .add_to_y = false});
    }});
    rate_ = 2.0 * 8192 * 8192 * 8192 / product;
    fmt::print("{}\ncopy {:.0f} GB/s, product of 8192 {:.0f} TFLOP/s\n", ops_->Describe(),
               bandwidth_ * 1e-9, rate_ * 1e-12);
  }

 private:
  static constexpr int32_t kPiece = 1 << 20;  // elements
  static constexpr size_t kShifts = 1024, kShift = 61;
  static int32_t NPieces(size_t n_elements) {
    return static_cast<int32_t>((n_elements + kPiece - 1) / kPiece);
  }
  Buffer RandomFp8Kv(size_t n_heads, size_t head_dim) {
    const size_t head_bytes = KvFp8HeadBytes(head_dim), n_made = std::min<size_t>(n_heads, 512);
    std::vector<uint8_t> made(n_made * head_bytes);
    for (size_t row = 0; row < n_made * kBlockTokens; ++row) {
      StoreKvFp8Row({noise_.data() + row % kShifts * kShift, head_dim}, row % kBlockTokens,
                    made.data() + row / kBlockTokens * head_bytes);
    }
    Buffer memory = *ops_->AllocateKv(n_heads * head_bytes);
    ops_->Upload(made.data(), memory.data.get(), made.size());
    for (size_t done = n_made; done < n_heads; done += n_made) {
      CopyOnDevice(memory.data.get(), memory.As<char>() + done * head_bytes,
                   std::min(n_made, n_heads - done) * head_bytes);
    }
    return memory;
  }
  void CopyOnDevice(const void* from, void* to, size_t bytes) {
    SC_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                             static_cast<cudaStream_t>(ops_->native_queue().stream)) ==
             cudaSuccess);
  }
  Buffer Filled(Matrix matrix) {
    // Other values in each matrix, so that a result shows which one it is from.
    const float* const noise = noise_.data() + n_filled_++ % kShifts * kShift;
    ops_->PackRows(matrix, 0, 1, noise, DType::kF32);
    const size_t bytes = ops_->MatrixBytes(1, matrix.cols, matrix.dtype);
    for (int32_t row = 1; row < matrix.rows; ++row) {
      CopyOnDevice(matrix.buffer.data.get(),
                   matrix.buffer.As<char>() + static_cast<size_t>(row) * bytes, bytes);
    }
    return matrix.buffer;
  }
  std::unique_ptr<Ops> ops_;
  const std::vector<float> noise_ = Noise(kPiece + kShifts * kShift);
  size_t n_filled_ = 0;
  cuda::Occupier occupier_;
  int32_t n_taken_ = 0;
  double bandwidth_ = 1, rate_ = 1;
};

// Products with a matrix [n, k]. adds: float32 outputs are added to.
void BenchGemm(Bench& bench, const char* name, int32_t n, int32_t k, bool adds);
// Quantized weights beside bfloat16 ones. The bandwidth counts stored bytes.
void BenchPacked(Bench& bench, int32_t n, int32_t k);
// A gated activation in the product's kernel, and the two calls that it replaces.
void BenchGated(Bench& bench, int32_t width, int32_t k);
void BenchFp8(Bench& bench);
void BenchExperts(Bench& bench);
void BenchPackedExperts(Bench& bench);
void BenchLatents(Bench& bench);

}  // namespace stagecoach::kernels
