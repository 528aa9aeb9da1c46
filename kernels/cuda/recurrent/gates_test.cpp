#include <catch2/generators/catch_generators_range.hpp>

#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("Gates equal the reference") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const int32_t head_dim = GENERATE(22, 64);
  constexpr int32_t kRows = 5, kHeads = 3, kKvHeads = 2;
  const int32_t width = kHeads * head_dim, kv_width = 2 * kKvHeads * head_dim;
  const std::vector<float> projected =
      RandomFloats(static_cast<size_t>(kRows * (2 * width + kv_width)), 1, 3);
  const std::vector<float> ones(static_cast<size_t>(kRows * width), 1.0f);
  std::vector<std::vector<float>> results;
  for (const bool on_gpu : {false, true}) {
    const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
    const Values from(*ops, projected), gate(*ops, ones);
    const Values qkv(*ops, std::vector<float>(static_cast<size_t>(kRows * (width + kv_width))),
                     dtype);
    ops->SplitGate({.projected = from.f32(),
                    .qkv = qkv,
                    .gate = gate.f32(),
                    .n_tokens = kRows,
                    .n_heads = kHeads,
                    .n_kv_heads = kKvHeads,
                    .head_dim = head_dim});
    const Values by_element(*ops, ones, dtype), by_row(*ops, ones, dtype),
        by_choice(*ops, ones, dtype);
    std::vector<int32_t> numbers;
    for (int32_t row = 0; row < kRows; ++row) numbers.push_back(row * 5 % width);
    const Buffer chosen = *ops->Allocate(numbers.size() * sizeof(int32_t));
    ops->Upload(numbers.data(), chosen.data.get(), chosen.bytes);
    ops->SigmoidGate({.x = by_element,
                      .gate = gate.f32(),
                      .n_rows = kRows,
                      .width = width,
                      .gate_width = width});
    ops->SigmoidGate(
        {.x = by_row, .gate = gate.f32(), .n_rows = kRows, .width = width, .gate_width = 1});
    ops->SigmoidGate({.x = by_choice,
                      .gate = gate.f32(),
                      .n_rows = kRows,
                      .width = width,
                      .gate_width = width,
                      .chosen = chosen.As<int32_t>()});
    std::vector<float> all = gate.Get();
    for (const Values* const part : {&qkv, &by_element, &by_row, &by_choice}) {
      const std::vector<float> values = part->Get();
      all.insert(all.end(), values.begin(), values.end());
    }
    results.push_back(all);
  }
  CHECK(WorstError(results[1], results[0], 0.1) < Step(dtype));
}

}  // namespace
}  // namespace stagecoach::kernels
