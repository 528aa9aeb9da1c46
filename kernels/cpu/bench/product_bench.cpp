#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "common/encoding/rows.h"
#include "kernels/cpu/bench/cpu_bench.h"
#include "kernels/cpu/bench/random_matrix.h"
#include "kernels/reference/reference_ops.h"
#include "kernels/testing/rounded_inputs.h"

namespace stagecoach::kernels {

void BenchGemm(const Bench& bench, int32_t n, int32_t k, const Encoding& type, int32_t most_rows) {
  const Matrix w = MakeMatrix(bench.ops, n, k, type);
  const std::vector<float> x = RandomFloats(512 * static_cast<size_t>(k), 1.0f);
  std::vector<float> one(n);
  bench.ops.Gemm({.x = x.data(), .w = &w, .y = one.data(), .n_rows = 1});
  {
    // A smaller matrix has the weights of the first rows. Of more outputs, some would be off by the
    // rounding of a long sum.
    const int32_t n_checked = std::min(n, 16384);
    auto reference = MakeReferenceOps();
    const Matrix reference_w = MakeMatrix(*reference, n_checked, k, type);
    std::vector<float> expected(n_checked);
    const std::vector<float> rounded =
        RoundedInputs(bench.ops, type.code, {x.begin(), x.begin() + k});
    reference->Gemm({.x = rounded.data(), .w = &reference_w, .y = expected.data(), .n_rows = 1});
    CheckClose({one.begin(), one.begin() + n_checked}, expected);
  }
  for (const int32_t rows : {1, 2, 4, 6, 16, 64, 512}) {
    if (rows > most_rows) break;
    std::vector<float> y(static_cast<size_t>(rows) * n);
    const auto call = [&] {
      bench.ops.Gemm({.x = x.data(), .w = &w, .y = y.data(), .n_rows = rows});
    };
    call();
    SC_CHECK(std::memcmp(y.data(), one.data(), one.size() * sizeof(float)) == 0);
    const double bandwidth = ReadBandwidth(bench.pool), peak = PeakFlops(bench.pool);
    const double seconds = bench.BestSeconds(call);
    const double bytes_rate = static_cast<double>(w.buffer.bytes) / seconds;
    const double flops = 2.0 * rows * n * static_cast<double>(k) / seconds;
    fmt::print(
        "gemm {:>6} x {:<5} {:<32} rows {:>3}: {:8.3f} ms  {:6.1f} GB/s ({:4.0f}% of {:.1f})"
        "  {:7.1f} GFLOP/s ({:3.0f}% of {:.0f})\n",
        n, k, EncodingName(type), rows, seconds * 1e3, bytes_rate * 1e-9,
        100 * bytes_rate / bandwidth, bandwidth * 1e-9, flops * 1e-9, 100 * flops / peak,
        peak * 1e-9);
    if (rows > 1 || bench.json == nullptr) continue;
    *bench.json << fmt::format(
        "{{\"name\": \"cpu_gemm/{} x {}/{}/1_row\", \"value\": {:.2f}, \"unit\": \"GB/s of packed "
        "weights\", \"reference\": \"read bandwidth, {:.2f} GB/s\", \"ratio\": {:.3f}, "
        "\"packed_over_stored\": {:.4f}}}\n",
        n, k, EncodingName(type), bytes_rate * 1e-9, bandwidth * 1e-9, bytes_rate / bandwidth,
        static_cast<double>(w.buffer.bytes) /
            static_cast<double>(
                EncodedBytes(type, static_cast<uint64_t>(n), static_cast<uint64_t>(k))));
  }
}

// The experts of a layer of Qwen3-30B-A3B, and which of them each row uses: rows share none more
// often than by chance. All have the same weights, each in its own memory.
void BenchExperts(const Bench& bench, const Encoding& up_type, const Encoding& down_type) {
  constexpr int32_t kExperts = 128, kUsed = 8, kHidden = 2048, kWidth = 768, kMostRows = 512;
  // n_copies: matrices in memory of their own, all in one allocation as in a worker.
  const auto make = [&](Ops& ops, int32_t n_copies, const Encoding& type, int32_t n, int32_t k) {
    const Matrix first = MakeMatrix(ops, n, k, type);
    const size_t bytes = (first.buffer.bytes + 255) / 256 * 256;
    const Buffer all = *ops.Allocate(bytes * static_cast<size_t>(n_copies));
    std::vector<Matrix> matrices(kExperts, first);
    for (size_t e = 0; e < static_cast<size_t>(n_copies); ++e) {
      char* const at = all.As<char>() + e * bytes;
      std::memcpy(at, first.buffer.data.get(), first.buffer.bytes);
      matrices[e].buffer.data = std::shared_ptr<void>(all.data, at);
    }
    return matrices;
  };
  const std::vector<float> x = RandomFloats(size_t{kMostRows} * kHidden, 1.0f);
  const std::vector<float> weights(size_t{kMostRows} * kUsed, 1.0f / kUsed);
  std::vector<int32_t> order(kExperts), chosen;
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(1);
  for (int32_t row = 0; row < kMostRows; ++row) {
    std::ranges::shuffle(order, random);
    chosen.insert(chosen.end(), order.begin(), order.begin() + kUsed);
  }
  const auto run = [&](Ops& ops, const std::vector<Matrix>& up, const std::vector<Matrix>& down,
                       int32_t first, int32_t rows, std::vector<float>& out,
                       const Buffer& scratch) {
    ops.ExpertMlp({.x = x.data() + size_t{kHidden} * first,
                   .experts = chosen.data() + size_t{kUsed} * first,
                   .weights = weights.data(),
                   .up = up,
                   .down = down,
                   .out = out.data(),
                   .scratch = scratch.data.get(),
                   .n_tokens = rows,
                   .n_used = kUsed,
                   .kind = Activation::kSilu,
                   .clears_out = true});
  };
  const auto scratch_of = [&](Ops& ops) {
    return *ops.Allocate(ops.ExpertScratchBytes({kMostRows, kExperts, kUsed, kHidden, kWidth}));
  };
  std::vector<float> one(kHidden);
  const auto up = make(bench.ops, kExperts, up_type, 2 * kWidth, kHidden);
  const auto down = make(bench.ops, kExperts, down_type, kHidden, kWidth);
  const Buffer scratch = scratch_of(bench.ops);
  run(bench.ops, up, down, 0, 1, one, scratch);
  if (!RoundsInputs(bench.ops, up_type.code)) {
    auto reference = MakeReferenceOps();
    std::vector<float> expected(kHidden);
    run(*reference, make(*reference, 0, up_type, 2 * kWidth, kHidden),
        make(*reference, 0, down_type, kHidden, kWidth), 0, 1, expected, scratch_of(*reference));
    CheckClose(one, expected);
  }
  for (const int32_t rows : {1, 4, 16, 64, kMostRows}) {
    std::vector<float> out(static_cast<size_t>(rows) * kHidden);
    run(bench.ops, up, down, 0, rows, out, scratch);
    SC_CHECK(std::memcmp(out.data(), one.data(), one.size() * sizeof(float)) == 0);
    const double bandwidth = ReadBandwidth(bench.pool), peak = PeakFlops(bench.pool);
    int32_t first = 0;  // other rows in each call, so that no cache holds their experts
    const double seconds = bench.BestSeconds([&] {
      run(bench.ops, up, down, first, rows, out, scratch);
      first = first + 2 * rows <= kMostRows ? first + rows : 0;
    });
    std::vector<bool> used(kExperts);
    for (int32_t i = 0; i < rows * kUsed; ++i) used[chosen[i]] = true;
    const double bytes = static_cast<double>(std::ranges::count(used, true)) *
                         static_cast<double>(up[0].buffer.bytes + down[0].buffer.bytes);
    const double flops = 6.0 * rows * kUsed * kWidth * kHidden / seconds;
    fmt::print(
        "experts {:<5} {:<5} rows {:>3}: {:8.3f} ms  {:6.1f} GB/s ({:3.0f}% of {:.1f})  {:7.1f} "
        "GFLOP/s ({:3.0f}% of {:.0f})\n",
        EncodingName(up_type), EncodingName(down_type), rows, seconds * 1e3, bytes / seconds * 1e-9,
        100 * bytes / seconds / bandwidth, bandwidth * 1e-9, flops * 1e-9, 100 * flops / peak,
        peak * 1e-9);
  }
}

}  // namespace stagecoach::kernels
