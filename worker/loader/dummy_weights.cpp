#include <algorithm>
#include <cmath>
#include <string_view>

#include "common/encoding/encode_rows.h"
#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "worker/loader/side_by_side.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kWorthThread = size_t{1} << 18;  // values

// FNV-1a, because std::hash may differ between machines.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

uint64_t KeyOf(const TensorRequest& tensor) {
  const uint64_t key = HashName(tensor.name);
  if (!tensor.is_stacked()) return key;
  return key + (static_cast<uint64_t>(tensor.place.expert) << 32) +
         static_cast<uint64_t>(tensor.place.turn);
}

// The output function of SplitMix64 (Steele, Lea, Flood 2014), as a counter-based generator.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t kWeyl = 0x9e3779b97f4a7c15u;  // the counter's step

// Number i of a sequence of uniform ones in [-1, 1).
float Uniform(uint64_t key, uint64_t i) {
  return static_cast<float>(Mix(key + i * kWeyl) >> 40) * 0x1p-23f - 1.0f;
}

class DummyWeights final : public WeightSource {
 public:
  DummyWeights(DType dtype, std::span<const TensorRequest> requests)
      : dtype_(dtype), requests_(requests.begin(), requests.end()) {}

  DType dtype(size_t) const override { return dtype_; }

  RowsView Rows(size_t request, int64_t first_row, int64_t n_rows) override {
    const TensorRequest& tensor = requests_[request];
    rows_.resize(static_cast<size_t>(n_rows * tensor.cols));
    if (const std::optional<Encoding> encoding = ImpliedEncoding(tensor)) {
      DecodeSideBySide(*encoding, StoredRows(request, first_row, n_rows),
                       static_cast<size_t>(n_rows), static_cast<size_t>(tensor.cols), rows_.data());
      return {rows_.data(), DType::kF32};
    }
    const uint64_t key = KeyOf(tensor), first = FirstElement(tensor, first_row);
    SideBySide(rows_.size(), kWorthThread, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        rows_[i] = tensor.dummy_center + tensor.dummy_spread * Uniform(key, first + i);
      }
    });
    return {rows_.data(), DType::kF32};
  }

  std::optional<Encoding> encoding(size_t request) const override {
    return ImpliedEncoding(requests_[request]);
  }

  const void* StoredRows(size_t request, int64_t first_row, int64_t n_rows) override {
    const TensorRequest& tensor = requests_[request];
    const size_t cols = static_cast<size_t>(tensor.cols);
    const Encoding encoding = ImpliedEncoding(tensor).value_or(Encoding());  // there is one
    const size_t row_bytes = RowBytes(encoding, cols);
    const uint64_t key = KeyOf(tensor);
    const auto make_row = encoding.code == Code::kFp8 ? MakeFp8Row : MakeMxFp4Row;
    stored_.resize(static_cast<size_t>(n_rows) * row_bytes);
    SideBySide(static_cast<size_t>(n_rows), kWorthThread / cols + 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) {
        make_row(tensor, encoding, key, first_row + static_cast<int64_t>(r),
                 stored_.data() + r * row_bytes);
      }
    });
    return stored_.data();
  }

 private:
  static uint64_t FirstElement(const TensorRequest& tensor, int64_t row) {
    return static_cast<uint64_t>(tensor.first_row + row) * static_cast<uint64_t>(tensor.cols);
  }

  static void MakeMxFp4Row(const TensorRequest& tensor, const Encoding& encoding, uint64_t key,
                           int64_t row, uint8_t* bytes) {
    const size_t cols = static_cast<size_t>(tensor.cols);
    // Uniform codes have a root mean square of 2.93; that of uniform values is spread / sqrt(3).
    const int scale =
        static_cast<int>(std::lround(std::log2(tensor.dummy_spread / 1.732f / 2.93f)));
    const uint64_t first = static_cast<uint64_t>(row) * RowBytes(encoding, cols);
    const GroupedRow<uint8_t> to = GroupedRowAt(encoding, cols, bytes);
    std::fill(to.scales, to.codes, static_cast<uint8_t>(127 + scale));
    for (size_t i = 0; i < cols / 2; ++i) {
      to.codes[i] = static_cast<uint8_t>(Mix((key + first + i) * kWeyl));
    }
  }

  // The values that the tensor would have in 16 bits, as far as FP8 has them.
  static void MakeFp8Row(const TensorRequest& tensor, const Encoding& encoding, uint64_t key,
                         int64_t row, uint8_t* bytes) {
    const size_t cols = static_cast<size_t>(tensor.cols);
    const uint64_t first = FirstElement(tensor, row);
    const GroupedRow<uint8_t> to = GroupedRowAt(encoding, cols, bytes);
    for (size_t g = 0; g < GroupCount(encoding, cols); ++g) {
      StoreElement(to.scales, encoding.scale, g, tensor.dummy_spread / kLargestFp8);
    }
    for (size_t i = 0; i < cols; ++i) {
      to.codes[i] = Fp8FromFloat(kLargestFp8 * Uniform(key, first + i));
    }
  }

  DType dtype_;
  std::vector<TensorRequest> requests_;
  std::vector<float> rows_;
  std::vector<uint8_t> stored_;  // StoredRows
};

}  // namespace

std::optional<Encoding> ImpliedEncoding(const TensorRequest& request) {
  const Quantization& quantization = request.quantization;
  if (request.is_vector) return std::nullopt;
  if (quantization.method == QuantMethod::kMxFp4 && request.is_stacked()) return MxFp4Encoding();
  if (quantization.method != QuantMethod::kFp8 || !request.is_linear) return std::nullopt;
  Encoding encoding(Code::kFp8);
  encoding.group = quantization.group_size;
  encoding.rows_share_scales = true;
  return encoding;
}

std::unique_ptr<WeightSource> MakeDummyWeights(DType dtype,
                                               std::span<const TensorRequest> requests) {
  return std::make_unique<DummyWeights>(dtype, requests);
}

}  // namespace stagecoach::worker
