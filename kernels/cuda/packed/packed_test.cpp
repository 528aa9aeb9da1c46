#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>

#include "kernels/cuda/packed/packed_matrices.h"
#include "kernels/cuda/testing/device_values.h"
#include "kernels/cuda/testing/relative_error.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

using enum Code;

Encoding Permuted() {
  Encoding encoding = Grouped(kInt4, DType::kF16, 64, true);
  encoding.is_permuted = true;
  return encoding;
}

struct Shape {
  std::vector<MatrixPart> parts;
  int32_t cols;

  int32_t rows() const {
    int32_t n = 0;
    for (const MatrixPart& part : parts) n += part.rows;
    return n;
  }
};

// Every form, with units, blocks and tiles that are not whole, and matrices of several parts.
const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {{{33, Grouped(kInt4, DType::kF16, 128)}}, 640},
      {{{20, Grouped(kInt4, DType::kBF16, 32, true)}}, 352},
      {{{16, Grouped(kInt4, DType::kF32, 64, true)}}, 192},
      {{{40, Grouped(kInt4, DType::kF16, 0, true)}}, 320},
      {{{17, Grouped(kInt8, DType::kBF16, 128)}}, 640},
      {{{17, Grouped(kInt8, DType::kF16, 32, true)}}, 96},
      {{{17, Grouped(kInt8, DType::kF32, 0)}}, 288},
      {{{48, Fp8Blocks()}, {9, kFp8}}, 2432},
      {{{32, Fp8Tensor()}, {3, Grouped(kFp8, DType::kF32, 32)}}, 160},
      {{{32, MxFp4Encoding()}, {19, MxFp4Encoding()}}, 576},
      {{{32, NvFp4Encoding()}, {19, NvFp4Encoding()}}, 608},
      {{{33, kQ4_0}}, 96},
      {{{33, kQ5_0}}, 608},
      {{{33, kQ8_0}}, 320},
      {{{33, kQ4_K}}, 768},
      {{{16, kQ5_K}}, 512},
      {{{21, kQ6_K}}, 512},
      {{{33, kIQ4_NL}}, 352},
      {{{21, kIQ4_XS}}, 768},
      {{{48, kQ4_K}, {16, kQ4_K}, {16, kQ6_K}}, 256},
      {{{48, Permuted()}, {16, Permuted()}, {7, Grouped(kInt4, DType::kF16, 64, true)}}, 320},
  };
  return shapes;
}

// Both devices' matrix and results for it.
class Comparison {
 public:
  Comparison(const Shape& shape, DType dtype, bool batch_invariant = false)
      : shape_(shape),
        dtype_(dtype),
        stored_(RandomParts(shape.parts, shape.cols)),
        ours_(NewCudaOps(batch_invariant)),
        reference_(MakeReferenceOps()),
        w_(PackParts(*ours_, stored_, shape.cols)),
        w_reference_(PackParts(*reference_, stored_, shape.cols)) {}

  // y of the first n_rows rows. to_float: y is float32; else it has the inputs' type.
  std::vector<float> Multiply(bool on_gpu, int32_t n_rows, bool to_float, bool adds) {
    Ops& ops = on_gpu ? *ours_ : *reference_;
    const auto cols = static_cast<size_t>(shape_.cols), rows = static_cast<size_t>(shape_.rows());
    const size_t n = static_cast<size_t>(n_rows);
    const DType y_type = to_float ? DType::kF32 : dtype_;
    const Values x(ops, Rounded(RandomFloats(n * cols, 2), dtype_), dtype_);
    const Values y(ops, Rounded(RandomFloats(n * rows, 3), y_type), y_type);
    const Values bias(ops, RandomFloats(rows, 4));
    ops.Gemm({.x = x,
              .w = on_gpu ? &w_ : &w_reference_,
              .bias = adds ? bias.f32() : nullptr,
              .y = y,
              .n_rows = n_rows,
              .add_to_y = adds});
    return y.Get();
  }

  std::vector<float> Embed(bool on_gpu, const std::vector<int32_t>& ids, DType dtype) {
    Ops& ops = on_gpu ? *ours_ : *reference_;
    const Values out(ops, std::vector<float>(ids.size() * static_cast<size_t>(shape_.cols)), dtype);
    const Ids on_device(ops, ids);
    ops.Embed({.ids = on_device.data(),
               .table = on_gpu ? &w_ : &w_reference_,
               .scale = 3,
               .out = out,
               .n_tokens = static_cast<int32_t>(ids.size())});
    return out.Get();
  }

 private:
  const Shape shape_;
  const DType dtype_;
  const std::vector<StoredPart> stored_;
  const std::unique_ptr<Ops> ours_, reference_;
  const Matrix w_, w_reference_;
};

std::string NameOf(const Shape& shape) {
  std::string name = std::to_string(shape.cols);
  for (const MatrixPart& part : shape.parts) name += " " + EncodingName(part.encoding);
  return name;
}

TEST_CASE("Packed weights: products equal the reference's") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  struct Call {
    int32_t n_rows;
    bool to_float, adds;
  };
  for (const Shape& shape : Shapes()) {
    Comparison both(shape, dtype);
    for (const auto& [n_rows, to_float, adds] :
         {Call{1, true, false}, Call{1, false, true}, Call{2, true, true}, Call{7, false, false},
          Call{8, true, false}, Call{16, true, true}, Call{17, false, true}, Call{64, true, false},
          Call{100, false, true}, Call{300, true, true}}) {
      if (n_rows > 17 && dtype == DType::kF16) continue;
      INFO(DTypeName(dtype) << " " << NameOf(shape) << " rows " << n_rows << " to float "
                            << to_float << " adds " << adds);
      // With few rows, codes and scales are exact. Else weights are rounded.
      const bool is_exact = to_float && n_rows <= cuda::PackedMatrices::kMostFewRows;
      CHECK(RelativeError(both.Multiply(true, n_rows, to_float, adds),
                          both.Multiply(false, n_rows, to_float, adds)) < (is_exact ? 1e-5 : 4e-3));
    }
  }
}

// A kernel for one row converts it to float16, in which a row of such inputs has no place without a
// factor.
TEST_CASE("Packed weights: one row with inputs of very different sizes") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  for (const Shape& shape : Shapes()) {
    const std::vector<StoredPart> stored = RandomParts(shape.parts, shape.cols);
    const Matrix w = PackParts(*ops, stored, shape.cols);
    const Matrix w_reference = PackParts(*reference, stored, shape.cols);
    const int largest = dtype == DType::kBF16 ? 60 : 12;
    for (const int smallest : {-60, -12, largest}) {
      INFO(DTypeName(dtype) << " " << NameOf(shape) << " from 2^" << smallest);
      std::vector<float> x = RandomFloats(static_cast<size_t>(shape.cols), 2);
      for (size_t i = 0; i < x.size(); ++i) {
        // Each 256 inputs are of another size, and in between they are 0.
        const int size = i / 256 % 2 == 0 ? largest : smallest;
        x[i] = i / 64 % 4 == 3 ? 0 : std::ldexp(x[i], size);
      }
      const auto multiply = [&](bool on_gpu) {
        Ops& device = on_gpu ? *ops : *reference;
        const Values in(device, Rounded(x, dtype), dtype);
        const Values y(device, std::vector<float>(static_cast<size_t>(shape.rows()), NAN));
        device.Gemm({.x = in, .w = on_gpu ? &w : &w_reference, .y = y, .n_rows = 1});
        return y.Get();
      };
      CHECK(RelativeError(multiply(true), multiply(false)) < 1e-5);
    }
    const Values zeros(*ops, std::vector<float>(static_cast<size_t>(shape.cols)), dtype);
    const Values y(*ops, std::vector<float>(static_cast<size_t>(shape.rows()), NAN));
    ops->Gemm({.x = zeros, .w = &w, .y = y, .n_rows = 1});
    CHECK(y.Get() == std::vector<float>(static_cast<size_t>(shape.rows())));
  }
}

TEST_CASE("Packed weights: products of tens of rows on a GPU of one multiprocessor") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  for (const Shape& shape : Shapes()) {
    const auto ops = NewCudaOps();
    const auto reference = MakeReferenceOps();
    const cuda::Stream stream{.handle = static_cast<cudaStream_t>(ops->native_queue().stream),
                              .n_multiprocessors = 1};
    const auto gemms = *cuda::Gemms::Create(&stream, {});
    cuda::PackedMatrices packed(&stream, /*batch_invariant=*/false);
    const std::vector<StoredPart> stored = RandomParts(shape.parts, shape.cols);
    const Matrix w = PackParts(*ops, stored, shape.cols);
    const Matrix w_reference = PackParts(*reference, stored, shape.cols);
    REQUIRE(packed.MatrixOf(w.buffer, shape.parts, shape.cols).ok());  // what permuted parts need
    for (const int32_t n_rows : {17, 50}) {
      INFO(DTypeName(dtype) << " " << NameOf(shape) << " rows " << n_rows);
      const size_t n = static_cast<size_t>(n_rows);
      const auto multiply = [&](bool on_gpu) {
        Ops& device = on_gpu ? *ops : *reference;
        const Values x(device, Rounded(RandomFloats(n * shape.cols, 2), dtype), dtype);
        const Values y(device, RandomFloats(n * shape.rows(), 3));
        const GemmArgs args{
            .x = x, .w = on_gpu ? &w : &w_reference, .y = y, .n_rows = n_rows, .add_to_y = true};
        if (on_gpu) {
          REQUIRE(packed.Gemm(args, *gemms).ok());
        } else {
          device.Gemm(args);
        }
        return y.Get();
      };
      CHECK(RelativeError(multiply(true), multiply(false)) < 4e-3);
    }
    REQUIRE(ops->Synchronize().ok());
  }
}

// Both devices' results of a norm, a product and a gated activation, or of two of them.
std::vector<float> Fused(Ops& ops, const Matrix& w, DType dtype, int32_t n_rows, bool norms,
                         bool activates) {
  const auto n = static_cast<size_t>(n_rows), cols = static_cast<size_t>(w.cols);
  const auto rows = static_cast<size_t>(w.rows);
  const Values hidden(ops, RandomFloats(n * cols, 2)), weight(ops, RandomFloats(cols, 3));
  const Values x(ops, Rounded(RandomFloats(n * cols, 4), dtype), dtype);
  const Values y(ops, std::vector<float>(n * rows), dtype);
  const Values out(ops, std::vector<float>(n * rows / 2), dtype);
  const NormArgs norm{.x = hidden.f32(),
                      .weight = weight.f32(),
                      .bias = nullptr,
                      .out = x,
                      .n_rows = n_rows,
                      .width = w.cols,
                      .kind = NormKind::kRmsPlusOne,
                      .eps = 1e-5f,
                      .add_to_out = false};
  const GemmArgs gemm{.x = x, .w = &w, .y = y, .n_rows = n_rows};
  const ActivationArgs activation{.x = y,
                                  .out = out,
                                  .n_rows = n_rows,
                                  .width = w.rows / 2,
                                  .kind = Activation::kGeluTanh,
                                  .gated = true};
  if (!activates) {
    ops.NormGemm(norm, gemm);
    return y.Get();
  }
  if (norms) {
    ops.NormGemmActivate(norm, gemm, activation);
  } else {
    ops.GemmActivate(gemm, activation);
  }
  return out.Get();
}

TEST_CASE("Packed weights: products with a norm before them and an activation behind them") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const std::vector<Shape> shapes = {
      {{{96, Grouped(kInt4, DType::kF16, 128)}}, 640},
      {{{608, Grouped(kInt4, DType::kF16, 128)}}, 512},
      {{{64, kQ4_K}}, 512},
      {{{64, kQ6_K}, {32, kQ4_K}}, 256},  // no gates
      {{{40, kQ8_0}}, 4096},              // neither
      {{{64, kFp8}}, 4128},               // too wide to be normed by the product
  };
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  for (const Shape& shape : shapes) {
    const std::vector<StoredPart> stored = RandomParts(shape.parts, shape.cols);
    const Matrix w = PackParts(*ops, stored, shape.cols);
    const Matrix w_reference = PackParts(*reference, stored, shape.cols);
    for (const int32_t n_rows : {1, 5, 16, 70}) {
      for (const auto& [norms, activates] : {std::pair(true, false), {false, true}, {true, true}}) {
        INFO(DTypeName(dtype) << " " << NameOf(shape) << " rows " << n_rows << " norm " << norms
                              << " activation " << activates);
        CHECK(RelativeError(Fused(*ops, w, dtype, n_rows, norms, activates),
                            Fused(*reference, w_reference, dtype, n_rows, norms, activates)) <
              (dtype == DType::kBF16 ? 1e-2 : 2e-3));
      }
    }
  }
}

TEST_CASE("Packed weights: products in float32 equal the reference's") {
  for (const Shape& shape : Shapes()) {
    Comparison both(shape, DType::kF32);
    for (const int32_t n_rows : {1, 6, 70}) {
      INFO(NameOf(shape) << " rows " << n_rows);
      CHECK(RelativeError(both.Multiply(true, n_rows, true, n_rows == 6),
                          both.Multiply(false, n_rows, true, n_rows == 6)) < 1e-6);
    }
  }
}

TEST_CASE("Packed weights: in batch-invariant mode a row does not depend on other rows") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF32);
  for (const Shape& shape : Shapes()) {
    INFO(NameOf(shape));
    Comparison both(shape, dtype, /*batch_invariant=*/true);
    const std::vector<float> all = both.Multiply(true, 70, true, false);
    for (const int32_t n_rows : {1, 5, 16, 33}) {
      const std::vector<float> some = both.Multiply(true, n_rows, true, false);
      CHECK(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("Packed weights: Embed reads rows exactly") {
  for (const Shape& shape : Shapes()) {
    INFO(NameOf(shape));
    Comparison both(shape, DType::kBF16);
    std::vector<int32_t> ids(static_cast<size_t>(shape.rows()));
    for (int32_t i = 0; i < shape.rows(); ++i) {
      ids[static_cast<size_t>(i)] = (i * 7 + 3) % shape.rows();
    }
    const std::vector<float> expected = both.Embed(false, ids, DType::kF32);
    CHECK(both.Embed(true, ids, DType::kF32) == expected);
    CHECK(both.Embed(true, ids, DType::kF16) == Rounded(expected, DType::kF16));
  }
}

TEST_CASE("Packed weights: expanded values are those of the encoding, rounded") {
  for (const Shape& shape : Shapes()) {
    INFO(NameOf(shape));
    // The product with unit rows is the transposed matrix.
    const auto ops = NewCudaOps();
    const auto reference = MakeReferenceOps();
    const std::vector<StoredPart> stored = RandomParts(shape.parts, shape.cols);
    const Matrix w = PackParts(*ops, stored, shape.cols);
    const Matrix w_reference = PackParts(*reference, stored, shape.cols);
    const auto cols = static_cast<size_t>(shape.cols), rows = static_cast<size_t>(shape.rows());
    std::vector<float> unit(cols * cols);
    for (size_t i = 0; i < cols; ++i) unit[i * cols + i] = 1;
    std::vector<std::vector<float>> results;
    for (Ops* device : {ops.get(), reference.get()}) {
      const Values x(*device, unit, DType::kBF16), y(*device, std::vector<float>(cols * rows));
      device->Gemm(
          {.x = x, .w = device == ops.get() ? &w : &w_reference, .y = y, .n_rows = shape.cols});
      results.push_back(y.Get());
    }
    CHECK(results[0] == Rounded(results[1], DType::kBF16));
    if (shape.cols > 400) break;
  }
}

TEST_CASE("Packed weights take at most 1.03 of the bytes in the checkpoint") {
  struct Case {
    Encoding encoding;
    double stored_bits;  // per weight, scales and packed zeros included
  };
  const Case cases[] = {
      {Grouped(kInt4, DType::kF16, 128, true), 4 + (16 + 4) / 128.0},
      {Grouped(kInt4, DType::kF16, 32, true), 4 + (16 + 4) / 32.0},
      {Grouped(kInt4, DType::kBF16, 32), 4 + 16 / 32.0},
      {Grouped(kInt4, DType::kF16, 0), 4},
      {Grouped(kInt8, DType::kF16, 128, true), 8 + (16 + 8) / 128.0},
      {Grouped(kInt8, DType::kBF16, 0), 8},
      {MxFp4Encoding(), 4 + 8 / 32.0},
      {NvFp4Encoding(), 4 + 8 / 16.0},
      {Fp8Blocks(), 8},
      {Fp8Tensor(), 8},
      {kFp8, 8},
      {kQ4_0, 4.5},
      {kQ5_0, 5.5},
      {kQ8_0, 8.5},
      {kQ4_K, 4.5},
      {kQ5_K, 5.5},
      {kQ6_K, 6.5625},
      {kIQ4_NL, 4.5},
      {kIQ4_XS, 4.25},
  };
  const auto ops = NewCudaOps();
  for (const int32_t cols : {1024, 2816}) {
    for (const Case& c : cases) {
      const MatrixPart part{1024, c.encoding};
      INFO(EncodingName(c.encoding) << " " << cols);
      CHECK(ops->Keeps(c.encoding, cols));
      CHECK(static_cast<double>(ops->MatrixBytes({&part, 1}, cols)) <
            1.03 * c.stored_bits / 8 * 1024 * cols);
    }
  }
}

TEST_CASE("Packed weights: rows and groups that a GPU does not keep") {
  const auto ops = NewCudaOps();
  CHECK(!ops->Keeps(kQ8_0, 40));
  CHECK(!ops->Keeps(kF16, 64));
  CHECK(!ops->Keeps(Grouped(kInt4, DType::kF16, 16), 64));
  CHECK(!ops->Keeps(Grouped(kInt4, DType::kF16, 96), 192));
  CHECK(ops->Keeps(Grouped(kInt4, DType::kF16, 512), 1024));
}

}  // namespace
}  // namespace stagecoach::kernels
