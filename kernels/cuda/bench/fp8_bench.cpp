// FP8 weights beside bfloat16 ones, for the products of a layer as models call them.
#include <span>

#include "kernels/cuda/bench/bench.h"
#include "kernels/cuda/fp8/fp8_rows.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

struct Product {
  const char* name;
  int32_t rows, cols;
  bool norms;      // one row: with the norm before it
  bool activates;  // gate and up projections
  bool adds;       // to a float32 y
};

Matrix Fp8Matrix(Ops& ops, const Product& of) {
  constexpr int32_t kPiece = 1024;
  const MatrixPart part{of.rows, Code::kFp8};
  static std::vector<StoredPart> stored;
  if (stored.empty() || stored[0].part.rows != kPiece ||
      stored[0].bytes.size() != kPiece * RowBytes(Code::kFp8, static_cast<size_t>(of.cols))) {
    stored = RandomParts({{kPiece, Code::kFp8}}, of.cols);
  }
  Matrix matrix = *ops.NewMatrix({&part, 1}, of.cols);
  for (int32_t row = 0; row < of.rows; row += kPiece) {
    ops.PackStored(matrix, row, std::min(kPiece, of.rows - row), stored[0].bytes.data());
  }
  return matrix;
}

// Rows of the widest of some products.
struct Rows {
  static constexpr size_t kMost = 8192;
  const Buffer hidden, x, y, activated;

  Rows(Bench& bench, size_t most_rows, size_t most_cols)
      : hidden(bench.Random(kMost * most_cols, DType::kF32)),
        x(bench.Random(kMost * most_cols, kType)),
        y(bench.Random(kMost * most_rows, kType)),
        activated(bench.Random(kMost * most_rows / 2, kType)) {}
};

void Call(Ops& ops, const Product& of, const Matrix& w, const Rows& rows, int32_t n_rows) {
  const NormArgs norm{.x = rows.hidden.As<float>(),
                      .weight = rows.hidden.As<float>(),
                      .bias = nullptr,
                      .out = {rows.x.data.get(), kType},
                      .n_rows = n_rows,
                      .width = of.cols,
                      .kind = NormKind::kRms,
                      .eps = 1e-5f,
                      .add_to_out = false};
  const GemmArgs gemm{.x = {rows.x.data.get(), kType},
                      .w = &w,
                      .bias = nullptr,
                      .y = of.adds ? Act(rows.hidden.As<float>()) : Act(rows.y.data.get(), kType),
                      .n_rows = n_rows,
                      .add_to_y = of.adds};
  const ActivationArgs activation{.x = {rows.y.data.get(), kType},
                                  .out = {rows.activated.data.get(), kType},
                                  .n_rows = n_rows,
                                  .width = of.rows / 2,
                                  .kind = Activation::kSilu,
                                  .gated = true};
  if (of.activates) {
    ops.NormGemmActivate(norm, gemm, activation);
  } else if (of.norms) {
    ops.NormGemm(norm, gemm);
  } else {
    ops.Gemm(gemm);
  }
}

void BenchProduct(Bench& bench, const Product& of) {
  Ops& ops = bench.ops();
  const Rows rows(bench, static_cast<size_t>(of.rows),
                  static_cast<size_t>(std::max(of.rows, of.cols)));
  const auto seconds = [&](const std::vector<Matrix>& w, int32_t n_rows) {
    std::vector<std::function<void()>> calls;
    for (const Matrix& matrix : w) {
      calls.push_back([&, n_rows] { Call(ops, of, matrix, rows, n_rows); });
      if (n_rows >= 2048 && calls.size() == 2) break;
    }
    return bench.Seconds(calls);
  };
  constexpr int32_t kRows[] = {1, 4, 8, 16, 17, 32, 64, 128, 256, 2048, 8192};
  const auto n_cold = [](double bytes) {
    return std::max<size_t>(2, static_cast<size_t>(static_cast<double>(kColdBytes) / bytes));
  };
  const double bytes = static_cast<double>(of.rows) * of.cols;
  std::vector<double> plain;
  {
    std::vector<Matrix> w;
    for (size_t i = 0; i < n_cold(2 * bytes); ++i)
      w.push_back(bench.RandomMatrix(of.rows, of.cols));
    for (const int32_t n : kRows) plain.push_back(seconds(w, n));
  }
  std::vector<Matrix> w;
  for (size_t i = 0; i < n_cold(bytes); ++i) w.push_back(Fp8Matrix(ops, of));
  for (size_t i = 0; i < std::size(kRows); ++i) {
    const double here = seconds(w, kRows[i]);
    bench.Line(fmt::format("fp8 {} {} x {} rows {}, bf16 {:.1f} us, / it {:.2f}", of.name, of.rows,
                           of.cols, kRows[i], plain[i] * 1e6, plain[i] / here),
               here, bytes, 2.0 * kRows[i] * bytes);
  }
}

// All products of a layer in a row, as decoding and prompts run them: two layers, which are larger
// than the caches.
void BenchLayer(Bench& bench, std::span<const Product> products) {
  Ops& ops = bench.ops();
  const Rows rows(bench, 28672, 14336);
  double bytes = 0;
  std::vector<Matrix> plain, fp8;
  for (int layer = 0; layer < 2; ++layer) {
    for (const Product& of : products) {
      plain.push_back(bench.RandomMatrix(of.rows, of.cols));
      fp8.push_back(Fp8Matrix(ops, of));
      if (layer == 0) bytes += static_cast<double>(of.rows) * of.cols;
    }
  }
  const auto seconds = [&](const std::vector<Matrix>& w, int32_t n_rows) {
    return bench.Seconds({[&] {
      for (size_t i = 0; i < w.size(); ++i) {
        Call(ops, products[i % products.size()], w[i], rows, n_rows);
      }
    }}) / 2;
  };
  for (const int32_t n_rows : {1, 4, 8, 16, 32, 64, 128, 256, 2048, 8192}) {
    const double before = seconds(plain, n_rows), here = seconds(fp8, n_rows);
    bench.Line(fmt::format("fp8 layer rows {}, bf16 {:.1f} us, / it {:.2f}", n_rows, before * 1e6,
                           before / here),
               here, bytes, 2.0 * n_rows * bytes);
  }
}

void BenchQuantize(Bench& bench, int32_t cols) {
  Ops& ops = bench.ops();
  const cuda::Stream stream{.handle = static_cast<cudaStream_t>(ops.native_queue().stream),
                            .overlaps = true};
  for (const int32_t n_rows : {32, 256, 4096}) {
    const auto n = static_cast<size_t>(n_rows) * static_cast<size_t>(cols);
    const Buffer x = bench.Random(n, kType), codes = *ops.Allocate(n);
    const Buffer scales = *ops.Allocate(static_cast<size_t>(n_rows) * sizeof(float));
    const double seconds = bench.SecondsInRow([&] {
      SC_CHECK(cuda::QuantizeFp8Rows(stream, {x.data.get(), kType}, n_rows, cols,
                                     {codes.As<unsigned char>(), scales.As<float>()}) ==
               cudaSuccess);
    });
    bench.Line(fmt::format("fp8 inputs {} x {}", n_rows, cols), seconds,
               3.0 * static_cast<double>(n), 0);
  }
}

}  // namespace

void BenchFp8(Bench& bench) {
  constexpr Product kProducts[] = {{"norm, qkv", 6144, 4096, true, false, false},
                                   {"o", 4096, 4096, false, false, true},
                                   {"norm, gate * up", 28672, 4096, true, true, false},
                                   {"down", 4096, 14336, false, false, true}};
  BenchLayer(bench, kProducts);
  for (const Product& product : kProducts) BenchProduct(bench, product);
  BenchQuantize(bench, 4096);
  BenchQuantize(bench, 14336);
}

}  // namespace stagecoach::kernels
