// Shared by the operation tests: seeded data, buffers that work on every device, comparison.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "common/float_convert.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

inline std::vector<float> RandomFloats(size_t n, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

inline std::vector<float> Rounded(std::vector<float> values, DType dtype) {
  for (float& value : values) {
    uint32_t stored = 0;
    StoreElement(&stored, dtype, 0, value);
    value = LoadElement(&stored, dtype, 0);
  }
  return values;
}

// Activations on a device: float32 on the reference, `dtype` elsewhere.
class Values {
 public:
  Values(Ops& ops, std::vector<float> values, DType dtype = DType::kF32)
      : ops_(ops), dtype_(ops.ActivationDType(dtype)), n_(values.size()) {
    std::vector<unsigned char> stored(n_ * DTypeBytes(dtype_));
    for (size_t i = 0; i < n_; ++i) StoreElement(stored.data(), dtype_, i, values[i]);
    buffer_ = *ops.Allocate(stored.size());
    ops.Upload(stored.data(), buffer_.data.get(), stored.size());
  }
  operator Act() const { return {buffer_.data.get(), dtype_}; }
  operator ConstAct() const { return {buffer_.data.get(), dtype_}; }
  float* f32() const { return Act(*this).f32(); }

  std::vector<float> Get() const {
    std::vector<unsigned char> stored(n_ * DTypeBytes(dtype_));
    ops_.Download(buffer_.data.get(), stored.data(), stored.size());
    REQUIRE(ops_.Synchronize().ok());
    std::vector<float> values(n_);
    for (size_t i = 0; i < n_; ++i) values[i] = LoadElement(stored.data(), dtype_, i);
    return values;
  }

 private:
  Ops& ops_;
  DType dtype_;
  size_t n_;
  Buffer buffer_;
};

class Ids {
 public:
  Ids(Ops& ops, const std::vector<int32_t>& ids) : ops_(ops), n_(ids.size()) {
    buffer_ = *ops.Allocate(n_ * sizeof(int32_t));
    ops.Upload(ids.data(), buffer_.data.get(), n_ * sizeof(int32_t));
  }
  int32_t* data() const { return buffer_.As<int32_t>(); }
  std::vector<int32_t> Get() const {
    std::vector<int32_t> ids(n_);
    ops_.Download(buffer_.data.get(), ids.data(), n_ * sizeof(int32_t));
    REQUIRE(ops_.Synchronize().ok());
    return ids;
  }

 private:
  Ops& ops_;
  size_t n_;
  Buffer buffer_;
};

inline Matrix PackedMatrix(Ops& ops, int32_t rows, int32_t cols, DType dtype,
                           const std::vector<float>& values) {
  Matrix matrix = *ops.NewMatrix(rows, cols, dtype);
  ops.PackRows(matrix, 0, rows, values.data(), DType::kF32);
  return matrix;
}

// The largest |a - b| / (|b| + floor).
inline double WorstError(const std::vector<float>& a, const std::vector<float>& b,
                         double floor = 1.0) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(static_cast<double>(a[i]) - b[i]) / (std::abs(b[i]) + floor);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

// Relative error that rounding to `dtype` may cause, with a margin for error in the inputs.
inline double Step(DType dtype) {
  return dtype == DType::kF32 ? 1e-5 : dtype == DType::kBF16 ? 1e-2 : 2e-3;
}

}  // namespace stagecoach::kernels
