// Hopper GEMMs with every tile shape, compared with the reference and with each other.
#include "kernels/cuda/hopper/hopper_gemm.h"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>

#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/testing/device_values.h"
#include "kernels/cuda/testing/ops_stream.h"

namespace stagecoach::kernels {
namespace {

struct Shape {
  int32_t rows, cols;  // of w
};

Matrix RandomMatrix(Ops& ops, const Shape& shape, DType dtype) {
  return PackedMatrix(ops, shape.rows, shape.cols, dtype,
                      RandomFloats(static_cast<size_t>(shape.rows) * shape.cols, 1,
                                   1 / std::sqrt(static_cast<float>(shape.cols))));
}

constexpr size_t kBeyond = 64;  // values after y that a kernel must not write

// Runs `run` with y as output and checks that the values after y do not change.
template <typename Run>
std::vector<float> WithGuard(Ops& ops, size_t n, float before, DType dtype, const Run& run) {
  std::vector<float> y(n, before);
  y.resize(n + kBeyond, 7);
  const Values out(ops, y, dtype);
  run(Act(out));
  y = out.Get();
  for (size_t i = n; i < n + kBeyond; ++i) CHECK(y[i] == 7);
  y.resize(n);
  return y;
}

TEST_CASE("HopperGemm: every tile size, shapes that tiles do not divide, few rows and many") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const Shape shape = GENERATE(Shape{8, 128}, Shape{200, 384}, Shape{520, 1536}, Shape{1544, 256},
                               Shape{6152, 128});
  const bool to_float = GENERATE(false, true);
  const int32_t n_multiprocessors = GENERATE(2, 1000);
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps();
  const cuda::Stream stream = StreamOf(*ops, n_multiprocessors);
  const Matrix w = RandomMatrix(*ops, shape, dtype),
               their_w = RandomMatrix(*reference, shape, dtype);
  const auto rows = static_cast<size_t>(shape.rows);
  const Values bias(*ops, RandomFloats(rows, 4)), their_bias(*reference, RandomFloats(rows, 4));
  for (const int32_t n_rows : {1, 9, 16, 64, 65, 130, 300}) {
    if (n_rows > 65 && shape.rows > 2000) continue;
    const size_t n = static_cast<size_t>(n_rows) * rows;
    const std::vector<float> input =
        Rounded(RandomFloats(static_cast<size_t>(n_rows) * shape.cols, 2), dtype);
    const Values x(*ops, input, dtype), their_x(*reference, input);
    // Only float32 y supports a bias and add_to_y; test both together.
    const float before = to_float ? 0.5f : NAN;
    const auto args = [&](Ops& on, const Values& in, const Matrix& matrix, Act y) {
      const bool here = &on == ops.get();
      return GemmArgs{.x = in,
                      .w = &matrix,
                      .bias = to_float ? (here ? bias : their_bias).f32() : nullptr,
                      .y = y,
                      .n_rows = n_rows,
                      .add_to_y = to_float};
    };
    const Values theirs(*reference, std::vector<float>(n, to_float ? before : 0));
    reference->Gemm(args(*reference, their_x, their_w, theirs));
    std::vector<float> first;
    const DType y_dtype = to_float ? DType::kF32 : dtype;
    const GemmArgs any = args(*ops, x, w, {nullptr, y_dtype});
    if (cuda::HopperGemmWays(stream, any, cuda::Additions::kAny).empty()) continue;
    for (int way = 0; way < cuda::NHopperGemmWays(any); ++way) {
      INFO(DTypeName(dtype) << " " << shape.rows << " x " << shape.cols << " rows " << n_rows
                            << " way " << way);
      const std::vector<float> y = WithGuard(*ops, n, before, y_dtype, [&](Act out) {
        REQUIRE(cuda::HopperGemm(stream, args(*ops, x, w, out), way) == cudaSuccess);
      });
      CHECK(WorstError(y, theirs.Get()) < (to_float ? 1e-4 : Step(dtype)));
      if (cuda::HopperGemmAdditions(any, way) != cuda::Additions::kInOrder) continue;
      if (first.empty()) first = y;
      CHECK(std::memcmp(y.data(), first.data(), sizeof(float) * n) == 0);
    }
  }
}

TEST_CASE("HopperGemm: split-K kernels are not offered for in-order addition") {
  const auto ops = NewCudaOps();
  const cuda::Stream stream = StreamOf(*ops, 1000);
  const Matrix w = RandomMatrix(*ops, {4096, 4096}, DType::kBF16);
  const Values x(*ops, std::vector<float>(size_t{512} * 4096), DType::kBF16);
  const Values y(*ops, std::vector<float>(size_t{512} * 4096));
  bool splits = false;
  for (const int32_t n_rows : {1, 64, 128, 256, 512}) {
    const GemmArgs args{.x = x, .w = &w, .y = y, .n_rows = n_rows, .add_to_y = true};
    for (const int way : cuda::HopperGemmWays(stream, args, cuda::Additions::kInOrder)) {
      CHECK(cuda::HopperGemmAdditions(args, way) == cuda::Additions::kInOrder);
    }
    for (const int way : cuda::HopperGemmWays(stream, args, cuda::Additions::kAny)) {
      splits = splits || cuda::HopperGemmAdditions(args, way) == cuda::Additions::kAny;
    }
  }
  CHECK(splits == stream.is_hopper);
}

TEST_CASE("HopperGatedGemm: every tile gives the same bits as Gemm and activation") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const Activation kind = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const int32_t width = GENERATE(8, 120, 776), cols = GENERATE(128, 640);
  const int32_t n_multiprocessors = GENERATE(2, 1000);
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  const cuda::Stream stream = StreamOf(*ops, n_multiprocessors);
  const Matrix w = RandomMatrix(*ops, {2 * width, cols}, dtype);
  for (const int32_t n_rows : {1, 16, 65, 300, 2500}) {
    if (n_rows > 300 && (width != 120 || cols != 640)) continue;
    const auto n = static_cast<size_t>(n_rows) * width;
    const Values x(*ops, RandomFloats(static_cast<size_t>(n_rows) * cols, 2), dtype);
    const Values product(*ops, std::vector<float>(2 * n), dtype);
    const GemmArgs gemm{.x = x, .w = &w, .y = product, .n_rows = n_rows};
    ops->Gemm(gemm);
    const auto activation = [&](Act out) {
      return ActivationArgs{
          .x = product, .out = out, .n_rows = n_rows, .width = width, .kind = kind, .gated = true};
    };
    const Values theirs(*ops, std::vector<float>(n), dtype);
    ops->Activate(activation(theirs));
    if (cuda::HopperGatedGemmWays(stream, gemm, activation(theirs)).empty()) continue;
    for (int way = 0; way < cuda::NHopperGatedGemmWays(gemm); ++way) {
      INFO(DTypeName(dtype) << " width " << width << " cols " << cols << " rows " << n_rows
                            << " way " << way);
      const std::vector<float> y = WithGuard(*ops, n, NAN, dtype, [&](Act out) {
        REQUIRE(cuda::HopperGatedGemm(stream, gemm, activation(out), way) == cudaSuccess);
      });
      CHECK(std::memcmp(y.data(), theirs.Get().data(), sizeof(float) * n) == 0);
    }
  }
}

}  // namespace
}  // namespace stagecoach::kernels
