#include <string_view>

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
    const uint64_t key = HashName(tensor.name);
    const uint64_t first = static_cast<uint64_t>(first_row) * tensor.cols;
    rows_.resize(static_cast<size_t>(n_rows * tensor.cols));
    SideBySide(rows_.size(), kWorthThread, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const uint64_t bits = Mix(key + (first + i) * 0x9e3779b97f4a7c15u);
        const float unit = static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;  // [-1, 1)
        rows_[i] = tensor.dummy_center + tensor.dummy_spread * unit;
      }
    });
    return {rows_.data(), DType::kF32};
  }

 private:
  DType dtype_;
  std::vector<TensorRequest> requests_;
  std::vector<float> rows_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeDummyWeights(DType dtype,
                                               std::span<const TensorRequest> requests) {
  return std::make_unique<DummyWeights>(dtype, requests);
}

}  // namespace stagecoach::worker
