#include <fmt/format.h>

#include <vector>

#include "kernels/cpu/bench/cpu_bench.h"
#include "kernels/cpu/bench/random_matrix.h"
#include "kernels/reference/reference_ops.h"

namespace stagecoach::kernels {

// A recurrent layer of Qwen3-Next-80B-A3B beside its products: both projections, and as many
// multiply-adds at the same rate as 10 experts and the shared one take.
void BenchDeltaNet(const Bench& bench, int32_t n_seqs, int32_t n_tokens) {
  const RecurrentShape shape{.n_key_heads = 16,
                             .n_value_heads = 32,
                             .key_dim = 128,
                             .value_dim = 128,
                             .conv_width = 4,
                             .by_key_head = true};
  constexpr int32_t kHidden = 2048, kExpertRows = 11 * 3 * 512;
  const int32_t n_rows = n_seqs * n_tokens;
  const auto floats = [](int64_t n) { return RandomFloats(static_cast<size_t>(n), 1.0f); };
  const auto projected = floats(int64_t{n_rows} * shape.projected_width());
  const auto conv = floats(int64_t{shape.n_channels()} * shape.conv_width);
  const auto numbers = floats(shape.n_value_heads), norm = floats(shape.value_dim);
  std::vector<StepSeq> seqs;
  for (int32_t s = 0; s < n_seqs; ++s) seqs.push_back({s, 0, n_tokens});
  std::vector<float> out(static_cast<size_t>(n_rows) * shape.values_width());
  const auto run = [&](Ops& ops, std::vector<float>& x, std::vector<float>& states,
                       std::vector<float>& mixed, const StepInputs& step) {
    ops.Recurrence({.shape = shape,
                    .projected = x.data(),
                    .conv = conv.data(),
                    .a_log = numbers.data(),
                    .dt_bias = numbers.data(),
                    .norm = norm.data(),
                    .norm_eps = 1e-6f,
                    .step = &step,
                    .states = states.data(),
                    .saves = {},
                    .mixed = mixed.data(),
                    .out = out.data()});
  };
  std::vector<float> states(static_cast<size_t>(n_seqs * shape.state_elements()));
  std::vector<float> mixed(static_cast<size_t>(n_rows) * shape.n_channels()), x = projected;
  const auto new_step = [&](Ops& ops) {
    auto step = *ops.NewStepInputs({.max_tokens = n_rows, .max_slots = n_seqs, .max_blocks = 1});
    ops.BuildStep({.seqs = seqs, .n_tokens = n_rows}, step.get());
    return step;
  };
  const auto step = new_step(bench.ops);
  run(bench.ops, x, states, mixed, *step);
  const std::vector<float> got = out;
  auto reference = MakeReferenceOps();
  std::vector<float> whole = projected;
  run(*reference, whole, states, mixed, *new_step(*reference));
  CheckClose(got, out);

  const double seconds = bench.BestSeconds([&] { run(bench.ops, x, states, mixed, *step); });
  const std::vector<float> hidden = floats(int64_t{n_rows} * kHidden);
  Matrix w = *bench.ops.NewMatrix(shape.projected_width(), kHidden, DType::kBF16);
  const std::vector<float> weights = floats(int64_t{w.rows} * w.cols);
  bench.ops.PackRows(w, 0, w.rows, weights.data(), DType::kF32);
  const double product = bench.BestSeconds(
      [&] { bench.ops.Gemm({.x = hidden.data(), .w = &w, .y = x.data(), .n_rows = n_rows}); });
  const double of_layer =
      product * (1.0 + static_cast<double>(shape.values_width() + kExpertRows) / w.rows);
  fmt::print("delta net {:>2} x {:>4}: {:8.3f} ms, {:4.1f}% of a layer with its products\n", n_seqs,
             n_tokens, seconds * 1e3, 100 * seconds / (seconds + of_layer));
}

}  // namespace stagecoach::kernels
