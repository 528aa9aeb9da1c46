// The operations of recurrent layers and gates.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "kernels/cpu/kernel_test_util.h"

namespace stagecoach::kernels {
namespace {

constexpr int32_t kSlots = 3;

struct Weights {
  explicit Weights(const RecurrentShape& shape)
      : conv(RandomFloats(static_cast<size_t>(shape.n_channels() * shape.conv_width), 1)),
        a_log(RandomFloats(static_cast<size_t>(shape.n_value_heads), 2)),
        conv_bias(RandomFloats(static_cast<size_t>(shape.n_channels()), 6)),
        dt_bias(RandomFloats(static_cast<size_t>(shape.n_value_heads), 3)),
        skip(RandomFloats(static_cast<size_t>(shape.n_value_heads), 7)),
        norm(RandomFloats(static_cast<size_t>(shape.norm_width()), 4)) {}
  std::vector<float> conv, a_log, conv_bias, dt_bias, skip, norm;
};

// A layer with the states of kSlots sequences.
class Layer {
 public:
  Layer(const RecurrentShape& shape, const Weights& weights, std::unique_ptr<Ops> ops)
      : shape_(shape), weights_(weights), ops_(std::move(ops)) {
    step_ = *ops_->NewStepInputs({.max_tokens = 64, .max_slots = kSlots, .max_blocks = 4});
    // What an earlier sequence has left there must not matter.
    states_.assign(static_cast<size_t>(kSlots * shape.state_elements()), 7.0f);
  }

  // Runs rows of `projected` [T, projected_width] as one step.
  std::vector<float> Run(std::vector<StepSeq> seqs, std::vector<float> projected,
                         std::vector<StateSave> saves = {}) {
    int32_t n = 0;
    for (const StepSeq& seq : seqs) n += seq.n_tokens;
    ops_->BuildStep({.seqs = seqs, .n_tokens = n}, step_.get());
    std::vector<float> mixed(static_cast<size_t>(n * shape_.n_channels()));
    std::vector<float> out(static_cast<size_t>(n * shape_.values_width()));
    ops_->Recurrence({.shape = shape_,
                      .projected = projected.data(),
                      .conv = weights_.conv.data(),
                      .conv_bias = shape_.is_state_space() ? weights_.conv_bias.data() : nullptr,
                      .a_log = weights_.a_log.data(),
                      .dt_bias = weights_.dt_bias.data(),
                      .skip = weights_.skip.data(),
                      .norm = weights_.norm.data(),
                      .norm_eps = 1e-6f,
                      .step = step_.get(),
                      .states = states_.data(),
                      .saves = saves,
                      .mixed = mixed.data(),
                      .out = out.data()});
    REQUIRE(ops_->Synchronize().ok());
    return out;
  }

  void Copy(int32_t from, int32_t to) {
    const StateCopy copy{from, to};
    ops_->CopyStates(
        {.states = states_.data(), .n_elements = shape_.state_elements(), .copies = {&copy, 1}});
  }

 private:
  const RecurrentShape shape_;
  const Weights& weights_;
  const std::unique_ptr<Ops> ops_;
  std::unique_ptr<StepInputs> step_;
  std::vector<float> states_;
};

std::vector<float> RowsAt(const std::vector<float>& all, int32_t first, int32_t n, int32_t width) {
  return {all.begin() + first * width, all.begin() + (first + n) * width};
}

TEST_CASE("A recurrent layer equals the reference, and chunks and neighbours change no bit") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const RecurrentShape shape = GENERATE(
      RecurrentShape{
          .n_key_heads = 2, .n_value_heads = 4, .key_dim = 16, .value_dim = 72, .conv_width = 4},
      RecurrentShape{.n_key_heads = 1,
                     .n_value_heads = 2,
                     .key_dim = 37,
                     .value_dim = 19,
                     .conv_width = 3,
                     .by_key_head = true},
      RecurrentShape{.n_key_heads = 2,
                     .n_value_heads = 2,
                     .key_dim = 128,
                     .value_dim = 128,
                     .conv_width = 2,
                     .by_key_head = true},
      RecurrentShape{.n_key_heads = 2,
                     .n_value_heads = 6,
                     .key_dim = 24,
                     .value_dim = 40,
                     .conv_width = 4,
                     .kind = RecurrentKind::kStateSpace},
      RecurrentShape{.n_key_heads = 1,
                     .n_value_heads = 3,
                     .key_dim = 37,
                     .value_dim = 19,
                     .conv_width = 3,
                     .kind = RecurrentKind::kStateSpace});
  const Weights weights(shape);
  const int32_t width = shape.projected_width();
  constexpr int32_t kRows = 23;
  const std::vector<float> projected = RandomFloats(static_cast<size_t>(kRows * width), 5, 2);

  Layer reference(shape, weights, MakeReferenceOps());
  const std::vector<float> expected = reference.Run({{1, 0, kRows}}, projected);
  Layer layer(shape, weights, MakeCpuOpsFor(target, 3));
  const std::vector<float> whole = layer.Run({{1, 0, kRows}}, projected);
  CHECK(WorstError(whole, expected) < 1e-4);

  const int32_t chunk = GENERATE(1, 2, 5);
  std::vector<float> in_chunks;
  for (int32_t at = 0; at < kRows; at += chunk) {
    const int32_t n = std::min(chunk, kRows - at);
    // Beside it, another sequence begins again and again.
    std::vector<float> rows = RowsAt(projected, 0, 3, width);
    const std::vector<float> own = RowsAt(projected, at, n, width);
    rows.insert(rows.end(), own.begin(), own.end());
    const std::vector<float> out = layer.Run({{2, 0, 3}, {0, at, n}}, rows);
    CHECK(SameBits(out.data(), whole.data(), static_cast<size_t>(3 * shape.values_width())));
    in_chunks.insert(in_chunks.end(), out.begin() + 3 * shape.values_width(), out.end());
  }
  REQUIRE(in_chunks.size() == whole.size());
  CHECK(SameBits(in_chunks.data(), whole.data(), whole.size()));
}

TEST_CASE("A sequence goes on from a state that another one has saved") {
  const bool on_reference = GENERATE(false, true);
  const RecurrentShape shape{
      .n_key_heads = 2, .n_value_heads = 4, .key_dim = 64, .value_dim = 64, .conv_width = 4};
  const Weights weights(shape);
  const int32_t width = shape.projected_width();
  const std::vector<float> projected = RandomFloats(static_cast<size_t>(9 * width), 5, 2);
  Layer layer(shape, weights, on_reference ? MakeReferenceOps() : MakeCpuOps({.n_threads = 2}));
  const std::vector<float> whole = layer.Run({{0, 0, 9}}, projected);
  layer.Run({{0, 0, 1}, {1, 0, 6}},
            [&] {
              std::vector<float> rows = RowsAt(projected, 0, 1, width);
              rows.insert(rows.end(), projected.begin(), projected.begin() + 6 * width);
              return rows;
            }(),
            {{.seq = 1, .n_rows = 4, .to = 2}});
  layer.Copy(2, 0);
  const std::vector<float> rest = layer.Run({{0, 4, 5}}, RowsAt(projected, 4, 5, width));
  CHECK(SameBits(rest.data(), whole.data() + 4 * shape.values_width(), rest.size()));
}

TEST_CASE("Gates equal the reference") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  auto ops = MakeCpuOpsFor(target, 3);
  auto reference = MakeReferenceOps();
  constexpr int32_t kRows = 5, kHeads = 3, kKvHeads = 2, kDim = 22;
  constexpr int32_t kWidth = kHeads * kDim, kKvWidth = 2 * kKvHeads * kDim;
  const std::vector<float> projected = RandomFloats(kRows * (2 * kWidth + kKvWidth), 1, 3);
  const auto run = [&](Ops& device) {
    std::vector<float> qkv(kRows * (kWidth + kKvWidth)), gate(kRows * kWidth);
    device.SplitGate({.projected = projected.data(),
                      .qkv = qkv.data(),
                      .gate = gate.data(),
                      .n_tokens = kRows,
                      .n_heads = kHeads,
                      .n_kv_heads = kKvHeads,
                      .head_dim = kDim});
    std::vector<float> x(kRows * kWidth, 1.0f), by_row(kRows * kWidth, 2.0f);
    std::vector<float> by_choice(kRows * kWidth, 3.0f);
    const std::vector<int32_t> chosen = {4, 0, kWidth - 1, 7, 4};
    device.SigmoidGate({.x = x.data(),
                        .gate = gate.data(),
                        .n_rows = kRows,
                        .width = kWidth,
                        .gate_width = kWidth});
    device.SigmoidGate({.x = by_row.data(),
                        .gate = gate.data(),
                        .n_rows = kRows,
                        .width = kWidth,
                        .gate_width = 1});
    device.SigmoidGate({.x = by_choice.data(),
                        .gate = gate.data(),
                        .n_rows = kRows,
                        .width = kWidth,
                        .gate_width = kWidth,
                        .chosen = chosen.data()});
    qkv.insert(qkv.end(), by_choice.begin(), by_choice.end());
    qkv.insert(qkv.end(), x.begin(), x.end());
    qkv.insert(qkv.end(), by_row.begin(), by_row.end());
    return qkv;
  };
  CHECK(WorstError(run(*ops), run(*reference)) < 1e-6);
}

}  // namespace
}  // namespace stagecoach::kernels
