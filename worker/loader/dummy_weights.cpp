#include <algorithm>
#include <cmath>
#include <string_view>

#include "common/encoding/rows.h"
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
    const uint64_t key = KeyOf(tensor);
    const uint64_t first = static_cast<uint64_t>(tensor.first_row + first_row) * tensor.cols;
    SideBySide(rows_.size(), kWorthThread, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const uint64_t bits = Mix(key + (first + i) * 0x9e3779b97f4a7c15u);
        const float unit = static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;  // [-1, 1)
        rows_[i] = tensor.dummy_center + tensor.dummy_spread * unit;
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
    const Encoding encoding = MxFp4Encoding();
    const size_t row_bytes = RowBytes(encoding, cols);
    // Uniform codes have a root mean square of 2.93; that of uniform values is spread / sqrt(3).
    const int scale =
        static_cast<int>(std::lround(std::log2(tensor.dummy_spread / 1.732f / 2.93f)));
    const uint64_t key = KeyOf(tensor);
    stored_.resize(static_cast<size_t>(n_rows) * row_bytes);
    SideBySide(static_cast<size_t>(n_rows), kWorthThread / cols + 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) {
        const uint64_t row_key = key + (static_cast<uint64_t>(first_row) + r) * row_bytes;
        const GroupedRow<uint8_t> row =
            GroupedRowAt(encoding, cols, stored_.data() + r * row_bytes);
        std::fill(row.scales, row.codes, static_cast<uint8_t>(127 + scale));
        for (size_t i = 0; i < cols / 2; ++i) {
          row.codes[i] = static_cast<uint8_t>(Mix((row_key + i) * 0x9e3779b97f4a7c15u));
        }
      }
    });
    return stored_.data();
  }

 private:
  DType dtype_;
  std::vector<TensorRequest> requests_;
  std::vector<float> rows_;
  std::vector<uint8_t> stored_;  // StoredRows
};

}  // namespace

std::optional<Encoding> ImpliedEncoding(const TensorRequest& request) {
  const bool is_mxfp4 = request.quantization.method == QuantMethod::kMxFp4 &&
                        request.is_stacked() && !request.is_vector;
  return is_mxfp4 ? std::optional<Encoding>(MxFp4Encoding()) : std::nullopt;
}

std::unique_ptr<WeightSource> MakeDummyWeights(DType dtype,
                                               std::span<const TensorRequest> requests) {
  return std::make_unique<DummyWeights>(dtype, requests);
}

}  // namespace stagecoach::worker
