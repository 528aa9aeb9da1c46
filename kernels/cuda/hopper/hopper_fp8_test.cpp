// Products in FP8 with Hopper instructions: every tile shape, compared with sums of the codes.
#include "kernels/cuda/hopper/hopper_fp8.h"

#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <random>

#include "common/encoding/rows.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/testing/device_values.h"
#include "kernels/cuda/testing/ops_stream.h"
#include "kernels/cuda/testing/relative_error.h"

namespace stagecoach::kernels {
namespace {

constexpr size_t kBeyond = 64;  // values after y that a kernel must not write

// Random codes, and scales for which products have a size of about 1.
class Operand {
 public:
  Operand(Ops& ops, int32_t rows, int32_t cols, uint32_t seed)
      : cols_(static_cast<size_t>(cols)), codes_(static_cast<size_t>(rows) * cols_) {
    std::mt19937 random(seed);
    for (uint8_t& code : codes_) {
      code = static_cast<uint8_t>(random());
      if ((code & 0x7f) == 0x7f) code = 0;  // not a number
    }
    const float size = 1 / (120 * std::pow(static_cast<float>(cols), 0.25f));
    for (int32_t row = 0; row < rows; ++row) {
      scales_.push_back(size * (0.5f + static_cast<float>(random() % 1000) / 1000));
    }
    memory_ = *ops.Allocate(codes_.size());
    ops.Upload(codes_.data(), memory_.data.get(), codes_.size());
    scale_memory_ = *ops.Allocate(scales_.size() * sizeof(float));
    ops.Upload(scales_.data(), scale_memory_.data.get(), scales_.size() * sizeof(float));
  }
  unsigned char* codes() const { return memory_.As<unsigned char>(); }
  float* scales() const { return scale_memory_.As<float>(); }

  // The products of all rows with those of w.
  std::vector<float> Times(const Operand& w) const {
    const auto values = [](const Operand& of) {
      std::vector<float> all(of.codes_.size());
      for (size_t i = 0; i < all.size(); ++i) {
        all[i] = FloatFromFp8(of.codes_[i]) * of.scales_[i / of.cols_];
      }
      return all;
    };
    const std::vector<float> a = values(*this), b = values(w);
    std::vector<float> products;
    for (size_t r = 0; r < scales_.size(); ++r) {
      for (size_t o = 0; o < w.scales_.size(); ++o) {
        double sum = 0;
        for (size_t i = 0; i < cols_; ++i) sum += double{a[r * cols_ + i]} * b[o * cols_ + i];
        products.push_back(static_cast<float>(sum));
      }
    }
    return products;
  }

 private:
  const size_t cols_;
  std::vector<uint8_t> codes_;
  std::vector<float> scales_;
  Buffer memory_, scale_memory_;
};

struct Shape {
  int32_t rows, cols;  // of w
};

TEST_CASE("HopperFp8: every tile size, shapes that tiles do not divide, few rows and many") {
  const Shape shape = GENERATE(Shape{16, 256}, Shape{208, 512}, Shape{528, 1536});
  const bool to_float = GENERATE(false, true);
  const int32_t n_multiprocessors = GENERATE(2, 1000);
  const auto ops = NewCudaOps();
  const cuda::Stream stream = StreamOf(*ops, n_multiprocessors);
  const Operand w(*ops, shape.rows, shape.cols, 1);
  const DType y_type = to_float ? DType::kF32 : DType::kBF16;
  for (const int32_t n_rows : {1, 17, 64, 65, 130, 300}) {
    const Operand x(*ops, n_rows, shape.cols, 2);
    const size_t n = static_cast<size_t>(n_rows) * static_cast<size_t>(shape.rows);
    cuda::Fp8GemmArgs args{
        .x = {x.codes(), x.scales()},
        .w = {.codes = w.codes(), .scales = w.scales(), .rows = shape.rows, .cols = shape.cols},
        .y = {nullptr, y_type},
        .n_rows = n_rows,
        .y_stride = shape.rows,
        .add_to_y = to_float};
    if (cuda::HopperFp8Ways(stream, args).empty()) continue;
    std::vector<float> expected = x.Times(w);
    for (float& value : expected) value += to_float ? 0.5f : 0;
    for (int way = 0; way < cuda::NHopperFp8Ways(args); ++way) {
      INFO(shape.rows << " x " << shape.cols << " rows " << n_rows << " to float " << to_float
                      << " way " << way);
      std::vector<float> before(n, to_float ? 0.5f : NAN);
      before.resize(n + kBeyond, 7);
      const Values y(*ops, before, y_type);
      args.y = y;
      REQUIRE(cuda::HopperFp8(stream, args, way) == cudaSuccess);
      std::vector<float> results = y.Get();
      for (size_t i = n; i < n + kBeyond; ++i) CHECK(results[i] == 7);
      results.resize(n);
      // Tensor cores keep about 14 bits of sums of FP8 products.
      CHECK(RelativeError(results, expected) < (to_float ? 2e-3 : 4e-3));
      CHECK(WorstError(results, expected) < 2 * Step(DType::kBF16));
    }
  }
}

TEST_CASE("HopperGatedFp8: every tile gives the activation of the product") {
  const Activation kind = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const int32_t width = GENERATE(8, 120, 776), cols = GENERATE(256, 1024);
  const int32_t n_multiprocessors = GENERATE(2, 1000);
  const auto ops = NewCudaOps();
  const cuda::Stream stream = StreamOf(*ops, n_multiprocessors);
  const Operand w(*ops, 2 * width, cols, 1);
  for (const int32_t n_rows : {1, 17, 65, 300}) {
    if (n_rows > 65 && width > 120) continue;
    const Operand x(*ops, n_rows, cols, 2);
    const size_t n = static_cast<size_t>(n_rows) * static_cast<size_t>(width);
    const Values product(*ops, std::vector<float>(2 * n), DType::kBF16);
    const cuda::Fp8GemmArgs args{
        .x = {x.codes(), x.scales()},
        .w = {.codes = w.codes(), .scales = w.scales(), .rows = 2 * width, .cols = cols},
        .y = product,
        .n_rows = n_rows,
        .y_stride = 2 * width,
        .add_to_y = false};
    const Values plain(*ops, x.Times(w), DType::kBF16);
    const Values theirs(*ops, std::vector<float>(n), DType::kBF16);
    ops->Activate(
        {.x = plain, .out = theirs, .n_rows = n_rows, .width = width, .kind = kind, .gated = true});
    for (int way = 0; way < cuda::NHopperGatedFp8Ways(); ++way) {
      INFO("width " << width << " cols " << cols << " rows " << n_rows << " way " << way);
      std::vector<float> before(n, NAN);
      before.resize(n + kBeyond, 7);
      const Values out(*ops, before, DType::kBF16);
      const ActivationArgs activation{
          .x = product, .out = out, .n_rows = n_rows, .width = width, .kind = kind, .gated = true};
      if (cuda::HopperGatedFp8Ways(stream, args, activation).empty()) continue;
      REQUIRE(cuda::HopperGatedFp8(stream, args, activation, way) == cudaSuccess);
      std::vector<float> results = out.Get();
      for (size_t i = n; i < n + kBeyond; ++i) CHECK(results[i] == 7);
      results.resize(n);
      CHECK(WorstError(results, theirs.Get()) < 3 * Step(DType::kBF16));
    }
  }
}

}  // namespace
}  // namespace stagecoach::kernels
