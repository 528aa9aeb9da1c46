#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "common/check.h"
#include "kernels/cuda/bench/bench.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {

void BenchGemm(Bench& bench, const char* name, int32_t n, int32_t k, bool adds) {
  const size_t bytes = static_cast<size_t>(n) * static_cast<size_t>(k) * 2;
  std::vector<Matrix> w;
  for (size_t i = 0; i < std::max<size_t>(2, kColdBytes / bytes); ++i) {
    w.push_back(bench.RandomMatrix(n, k));
  }
  const Buffer x = bench.Random(8192 * static_cast<size_t>(k), kType);
  const Buffer y = bench.Random(8192 * static_cast<size_t>(n), adds ? DType::kF32 : kType);
  for (const int32_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192}) {
    std::vector<std::function<void()>> calls;
    const size_t n_calls = rows >= 2048 ? 2 : w.size();
    for (size_t i = 0; i < n_calls; ++i) {
      calls.push_back([&, i] {
        bench.ops().Gemm({.x = {x.data.get(), kType},
                          .w = &w[i],
                          .bias = nullptr,
                          .y = {y.data.get(), adds ? DType::kF32 : kType},
                          .n_rows = rows,
                          .add_to_y = adds});
      });
    }
    const double moved = static_cast<double>(bytes) + rows * (k * kElement + n * (adds ? 8 : 2));
    bench.Line(fmt::format("gemm {} {} x {} rows {}", name, n, k, rows), bench.Seconds(calls),
               moved, 2.0 * rows * n * static_cast<double>(k));
  }
}

namespace {

struct PackedCase {
  const char* name;
  Encoding encoding;
};
std::vector<PackedCase> PackedCases() {
  return {{"int4", Grouped(Code::kInt4, DType::kF16, 128)},
          {"int4 zeros", Grouped(Code::kInt4, DType::kBF16, 128, true)},
          {"q4_k", Code::kQ4_K},
          {"q6_k", Code::kQ6_K},
          {"iq4_xs", Code::kIQ4_XS},
          {"q8_0", Code::kQ8_0},
          {"fp8", Code::kFp8},
          {"fp8 blocks", Fp8Blocks()},
          {"int8", Grouped(Code::kInt8, DType::kBF16, 128)},
          {"mxfp4", MxFp4Encoding()},
          {"nvfp4", NvFp4Encoding()}};
}

}  // namespace

void BenchPacked(Bench& bench, int32_t n, int32_t k) {
  Ops& ops = bench.ops();
  const Buffer x = bench.Random(256 * static_cast<size_t>(k), kType);
  const Buffer y = bench.Random(256 * static_cast<size_t>(n), kType);
  const auto seconds = [&](const std::vector<Matrix>& w, int32_t rows) {
    std::vector<std::function<void()>> calls;
    for (const Matrix& matrix : w) {
      calls.push_back([&] {
        ops.Gemm({.x = {x.data.get(), kType},
                  .w = &matrix,
                  .bias = nullptr,
                  .y = {y.data.get(), kType},
                  .n_rows = rows,
                  .add_to_y = false});
      });
    }
    return bench.Seconds(calls);
  };
  const auto n_cold = [](double bytes) {
    return std::max<size_t>(2, static_cast<size_t>(static_cast<double>(kColdBytes) / bytes));
  };
  constexpr int32_t kRows[] = {1, 4, 8, 16, 32, 64, 128, 256};
  std::vector<double> plain;
  {
    const double bytes = 2.0 * n * k;
    std::vector<Matrix> w;
    for (size_t i = 0; i < n_cold(bytes); ++i) w.push_back(bench.RandomMatrix(n, k));
    for (const int32_t rows : kRows) {
      plain.push_back(seconds(w, rows));
      bench.Line(fmt::format("packed bf16 {} x {} rows {}", n, k, rows), plain.back(), bytes, 0);
    }
  }
  for (const PackedCase& c : PackedCases()) {
    const MatrixPart part{n, c.encoding};
    constexpr int32_t kPiece = 1024;
    const std::vector<StoredPart> stored = RandomParts({{kPiece, c.encoding}}, k);
    const double bytes = static_cast<double>(
        EncodedBytes(c.encoding, static_cast<uint64_t>(n), static_cast<uint64_t>(k)));
    std::vector<Matrix> w;
    for (size_t i = 0; i < n_cold(bytes); ++i) w.push_back(*ops.NewMatrix({&part, 1}, k));
    const double pack = bench.MedianSeconds([&] {
      for (int32_t row = 0; row < n; row += kPiece) {
        ops.PackStored(w[0], row, std::min(kPiece, n - row), stored[0].bytes.data());
      }
    });
    for (size_t i = 1; i < w.size(); ++i) {
      SC_CHECK(cudaMemcpy(w[i].buffer.data.get(), w[0].buffer.data.get(), w[0].buffer.bytes,
                          cudaMemcpyDeviceToDevice) == cudaSuccess);
    }
    bench.Line(fmt::format("packed {} {} x {} load", c.name, n, k), pack, bytes, 0);
    for (size_t i = 0; i < std::size(kRows); ++i) {
      const double packed = seconds(w, kRows[i]);
      bench.Line(fmt::format("packed {} {} x {} rows {}, bf16 / it {:.2f}", c.name, n, k, kRows[i],
                             plain[i] / packed),
                 packed, bytes, 0);
    }
  }
}

void BenchGated(Bench& bench, int32_t width, int32_t k) {
  const size_t bytes = 2 * static_cast<size_t>(width) * static_cast<size_t>(k) * 2;
  const std::vector<Matrix> w = {bench.RandomMatrix(2 * width, k),
                                 bench.RandomMatrix(2 * width, k)};
  const Buffer x = bench.Random(8192 * static_cast<size_t>(k), kType);
  const Buffer y = bench.Random(8192 * 2 * static_cast<size_t>(width), kType);
  const Buffer out = bench.Random(8192 * static_cast<size_t>(width), kType);
  Ops& ops = bench.ops();
  for (const int32_t rows : {1, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192}) {
    const auto calls = [&](bool at_once) {
      std::vector<std::function<void()>> all;
      for (const Matrix& matrix : w) {
        all.push_back([&, at_once] {
          const GemmArgs gemm{.x = {x.data.get(), kType},
                              .w = &matrix,
                              .bias = nullptr,
                              .y = {y.data.get(), kType},
                              .n_rows = rows,
                              .add_to_y = false};
          const ActivationArgs activation{.x = {y.data.get(), kType},
                                          .out = {out.data.get(), kType},
                                          .n_rows = rows,
                                          .width = width,
                                          .kind = Activation::kSilu,
                                          .gated = true};
          if (at_once) {
            ops.GemmActivate(gemm, activation);
          } else {
            ops.Gemm(gemm);
            ops.Activate(activation);
          }
        });
      }
      return all;
    };
    const double moved = static_cast<double>(bytes) + rows * (k + width) * kElement;
    for (const bool at_once : {true, false}) {
      bench.Line(fmt::format("{} 2 x {} x {} rows {}", at_once ? "gated" : "gemm, gate * up", width,
                             k, rows),
                 bench.Seconds(calls(at_once)), moved, 4.0 * rows * width * static_cast<double>(k));
    }
  }
}

}  // namespace stagecoach::kernels
