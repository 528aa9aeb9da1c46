// Recurrent layers, compared with the reference.
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <optional>

#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels {
namespace {

constexpr int32_t kSlots = 4;
constexpr int32_t kMaxTokens = 64;
constexpr RecurrentKind kKinds[] = {RecurrentKind::kDeltaNet, RecurrentKind::kStateSpace};

// A layer with the states of kSlots sequences.
class Layer {
 public:
  Layer(const RecurrentShape& shape, std::unique_ptr<Ops> ops, DType dtype = DType::kF32)
      : shape_(shape),
        dtype_(dtype),
        ops_(std::move(ops)),
        conv_(*ops_, RandomFloats(static_cast<size_t>(shape.n_channels() * shape.conv_width), 1)),
        a_log_(*ops_, RandomFloats(static_cast<size_t>(shape.n_value_heads), 2)),
        dt_bias_(*ops_, RandomFloats(static_cast<size_t>(shape.n_value_heads), 3)),
        norm_(*ops_, RandomFloats(static_cast<size_t>(shape.norm_width()), 4)),
        conv_bias_(*ops_, RandomFloats(static_cast<size_t>(shape.n_channels()), 6)),
        skip_(*ops_, RandomFloats(static_cast<size_t>(shape.n_value_heads), 7)),
        // What an earlier sequence has left there must not matter.
        states_(*ops_,
                std::vector<float>(static_cast<size_t>(kSlots * shape.state_elements()), 7.0f)),
        projected_(*ops_, std::vector<float>(
                              static_cast<size_t>(kMaxTokens * shape.projected_width()), 1.0f)),
        mixed_(*ops_, std::vector<float>(static_cast<size_t>(kMaxTokens * shape.n_channels()))),
        out_(*ops_, std::vector<float>(static_cast<size_t>(kMaxTokens * shape.values_width()), NAN),
             dtype) {
    step_ = *ops_->NewStepInputs(
        {.max_tokens = kMaxTokens, .max_slots = kSlots, .max_blocks = 4, .has_states = true});
  }

  // Runs rows of `projected` [T, projected_width] as one step.
  std::vector<float> Run(const std::vector<StepSeq>& seqs, const std::vector<float>& projected,
                         const std::vector<StateSave>& saves = {}, int32_t n_padding = 0) {
    Build(seqs, projected, saves, n_padding);
    Compute(saves);
    return Rows(seqs);
  }

  // Records a step of `n_rows` decodes.
  void Record(int32_t n_rows) {
    Build({{0, 0, 1}}, std::vector<float>(static_cast<size_t>(shape_.projected_width()), 1.0f), {},
          n_rows - 1);
    auto recording = ops_->Record([this] { Compute({}); });
    REQUIRE(recording.ok());
    n_recorded_ = n_rows;
    recording_ = *std::move(recording);
  }
  std::vector<float> Replay(const std::vector<StepSeq>& seqs, const std::vector<float>& projected,
                            const std::vector<StateSave>& saves) {
    Build(seqs, projected, saves, n_recorded_ - static_cast<int32_t>(seqs.size()));
    recording_->Replay();
    return Rows(seqs);
  }

  void Copy(int32_t from, int32_t to) {
    const StateCopy copy{from, to};
    ops_->CopyStates(
        {.states = states_.f32(), .n_elements = shape_.state_elements(), .copies = {&copy, 1}});
  }

 private:
  static int32_t NRows(const std::vector<StepSeq>& seqs) {
    int32_t n = 0;
    for (const StepSeq& seq : seqs) n += seq.n_tokens;
    return n;
  }
  void Build(const std::vector<StepSeq>& seqs, const std::vector<float>& projected,
             const std::vector<StateSave>& saves, int32_t n_padding) {
    ops_->Upload(projected.data(), projected_.f32(), projected.size() * sizeof(float));
    ops_->BuildStep(
        {.seqs = seqs, .n_tokens = NRows(seqs), .n_padding = n_padding, .state_saves = saves},
        step_.get());
  }
  void Compute(const std::vector<StateSave>& saves) {
    ops_->Recurrence({.shape = shape_,
                      .projected = projected_.f32(),
                      .conv = conv_.f32(),
                      .conv_bias = shape_.is_state_space() ? conv_bias_.f32() : nullptr,
                      .a_log = a_log_.f32(),
                      .dt_bias = dt_bias_.f32(),
                      .skip = skip_.f32(),
                      .norm = norm_.f32(),
                      .norm_eps = 1e-6f,
                      .step = step_.get(),
                      .states = states_.f32(),
                      .saves = saves,
                      .mixed = mixed_.f32(),
                      .out = out_});
  }
  std::vector<float> Rows(const std::vector<StepSeq>& seqs) const {
    std::vector<float> out = out_.Get();
    out.resize(static_cast<size_t>(NRows(seqs) * shape_.values_width()));
    return out;
  }

  const RecurrentShape shape_;
  const DType dtype_;
  const std::unique_ptr<Ops> ops_;
  Values conv_, a_log_, dt_bias_, norm_, conv_bias_, skip_, states_, projected_, mixed_, out_;
  std::unique_ptr<StepInputs> step_;
  std::unique_ptr<Recording> recording_;
  int32_t n_recorded_ = 0;
};

std::vector<float> RowsAt(const std::vector<float>& all, int32_t first, int32_t n, int32_t width) {
  return {all.begin() + int64_t{first} * width, all.begin() + int64_t{first + n} * width};
}

std::vector<float> Joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_CASE("A recurrent layer equals the reference, and chunks and neighbours change no bit") {
  const RecurrentShape shape = GENERATE(
      RecurrentShape{
          .n_key_heads = 2, .n_value_heads = 4, .key_dim = 16, .value_dim = 72, .conv_width = 4},
      RecurrentShape{.n_key_heads = 1,
                     .n_value_heads = 2,
                     .key_dim = 37,
                     .value_dim = 19,
                     .conv_width = 3,
                     .by_key_head = true},
      RecurrentShape{
          .n_key_heads = 1, .n_value_heads = 2, .key_dim = 132, .value_dim = 260, .conv_width = 4},
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
                     .key_dim = 128,
                     .value_dim = 19,
                     .conv_width = 3,
                     .kind = RecurrentKind::kStateSpace},
      // The heads of Nemotron-H 8B, and of Nemotron Nano 9B.
      RecurrentShape{.n_key_heads = 2,
                     .n_value_heads = 4,
                     .key_dim = 128,
                     .value_dim = 64,
                     .conv_width = 4,
                     .kind = RecurrentKind::kStateSpace},
      RecurrentShape{.n_key_heads = 1,
                     .n_value_heads = 2,
                     .key_dim = 128,
                     .value_dim = 80,
                     .conv_width = 4,
                     .kind = RecurrentKind::kStateSpace});
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  const int32_t width = shape.projected_width();
  constexpr int32_t kRows = 19;
  const std::vector<float> projected = RandomFloats(static_cast<size_t>(kRows * width), 5, 2);

  Layer reference(shape, MakeReferenceOps());
  const std::vector<float> expected = reference.Run({{1, 0, kRows}}, projected);
  Layer layer(shape, NewCudaOps(), dtype);
  const std::vector<float> whole = layer.Run({{1, 0, kRows}}, projected);
  CHECK(WorstError(whole, expected) < (dtype == DType::kF32 ? 1e-4 : Step(dtype)));

  for (const int32_t chunk : {1, 2, 9}) {
    std::vector<float> in_chunks;
    for (int32_t at = 0; at < kRows; at += chunk) {
      const int32_t n = std::min(chunk, kRows - at);
      // Beside it, another sequence begins again and again.
      const std::vector<float> out =
          layer.Run({{2, 0, 3}, {0, at, n}},
                    Joined(RowsAt(projected, 0, 3, width), RowsAt(projected, at, n, width)));
      CHECK(RowsAt(out, 0, 3, shape.values_width()) == RowsAt(whole, 0, 3, shape.values_width()));
      in_chunks.insert(in_chunks.end(), out.begin() + int64_t{3} * shape.values_width(), out.end());
    }
    CHECK(in_chunks == whole);
  }
}

TEST_CASE("A sequence goes on from a state that another one has saved") {
  const RecurrentShape shape{.n_key_heads = 2,
                             .n_value_heads = 4,
                             .key_dim = 24,
                             .value_dim = 40,
                             .conv_width = 4,
                             .kind = GENERATE(from_range(kKinds))};
  const int32_t width = shape.projected_width(), out_width = shape.values_width();
  const std::vector<float> projected = RandomFloats(static_cast<size_t>(20 * width), 5, 2);
  Layer layer(shape, NewCudaOps());
  const std::vector<float> whole = layer.Run({{0, 0, 20}}, projected);
  const int32_t n_saved = GENERATE(1, 2, 8, 11);
  layer.Run({{0, 0, 1}, {1, 0, 12}},
            Joined(RowsAt(projected, 0, 1, width), RowsAt(projected, 0, 12, width)),
            {{.seq = 1, .n_rows = n_saved, .to = 2}});
  layer.Copy(2, 0);
  const int32_t n_left = 20 - n_saved;
  CHECK(layer.Run({{0, n_saved, n_left}}, RowsAt(projected, n_saved, n_left, width)) ==
        RowsAt(whole, n_saved, n_left, out_width));
  // The state of the sequence itself.
  CHECK(layer.Run({{1, 12, 8}}, RowsAt(projected, 12, 8, width)) ==
        RowsAt(whole, 12, 8, out_width));
}

TEST_CASE("A recorded layer reads sequences and saves anew") {
  const RecurrentShape shape{.n_key_heads = 1,
                             .n_value_heads = 2,
                             .key_dim = 32,
                             .value_dim = 32,
                             .conv_width = 4,
                             .kind = GENERATE(from_range(kKinds))};
  const int32_t width = shape.projected_width(), out_width = shape.values_width();
  const std::vector<float> projected = RandomFloats(static_cast<size_t>(8 * width), 5, 2);
  Layer layer(shape, NewCudaOps());
  const std::vector<float> whole = layer.Run({{0, 0, 8}}, projected);
  layer.Run({{1, 0, 4}, {2, 0, 2}},
            Joined(RowsAt(projected, 0, 4, width), RowsAt(projected, 0, 2, width)));
  layer.Record(3);
  // A padded row between them in the recording.
  CHECK(layer.Replay({{2, 2, 1}, {1, 4, 1}},
                     Joined(RowsAt(projected, 2, 1, width), RowsAt(projected, 4, 1, width)),
                     {{.seq = 1, .n_rows = 1, .to = 3}}) ==
        Joined(RowsAt(whole, 2, 1, out_width), RowsAt(whole, 4, 1, out_width)));
  CHECK(layer.Replay({{1, 5, 1}}, RowsAt(projected, 5, 1, width), {}) ==
        RowsAt(whole, 5, 1, out_width));
  layer.Copy(3, 0);
  CHECK(layer.Run({{0, 5, 3}, {1, 6, 2}},
                  Joined(RowsAt(projected, 5, 3, width), RowsAt(projected, 6, 2, width))) ==
        Joined(RowsAt(whole, 5, 3, out_width), RowsAt(whole, 6, 2, out_width)));
}

}  // namespace
}  // namespace stagecoach::kernels
