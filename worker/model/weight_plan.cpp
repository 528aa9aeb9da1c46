#include "worker/model/weight_plan.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <span>
#include <string_view>

namespace stagecoach::worker {
namespace {

// Spread around a dummy weight's centre. It is small, so that norms and biases keep their meaning.
constexpr float kDummyVectorSpread = 0.1f;

// Replaces the first "{}" of "a.{}.b" by the number.
std::string WithNumber(std::string_view pattern, int32_t number) {
  std::string name(pattern);
  if (const size_t at = name.find("{}"); at != name.npos) {
    name.replace(at, 2, std::to_string(number));
  }
  return name;
}

class Planner {
 public:
  Planner(const ModelSpec& spec, StageWeights* weights) : spec_(spec), weights_(weights) {}

  void Ends(bool is_first, bool is_last) {
    const TensorNames& names = spec_.names;
    const int32_t hidden = spec_.hidden_size, embed = spec_.embed_size;
    const bool has_logits = is_last && !spec_.pooling;
    if (is_first || (has_logits && spec_.tied_embedding)) {
      Matrix(&weights_->embed, embed, {{names.embed, spec_.vocab_size}});
    }
    if (is_first && spec_.learned_positions) {
      Matrix(&weights_->positions, hidden,
             {{names.positions, spec_.max_positions + spec_.position_offset}});
    }
    if (is_first && embed != hidden)
      Matrix(&weights_->project_in, embed, {{names.project_in, hidden}});
    if (is_first && spec_.layer_inputs.width > 0) LayerInputs();
    if (!is_last) return;
    if (!names.final_norm.empty()) {
      Norm(&weights_->final_norm, &weights_->final_norm_bias, names.final_norm, hidden);
    }
    if (embed != hidden) Matrix(&weights_->project_out, hidden, {{names.project_out, embed}});
    if (has_logits && !spec_.tied_embedding) {
      Matrix(&weights_->lm_head, embed, {{names.lm_head, spec_.vocab_size}});
    }
  }

  void Layer(int32_t layer, LayerWeights* to) {
    layer_ = layer;
    const TensorNames& names = spec_.names;
    const int32_t hidden = spec_.hidden_size;
    const bool post_norms = spec_.norm_placement == NormPlacement::kBeforeAndAfter;
    const LayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
    if (spec.has_mixer) {
      Norm(&to->attn_norm, &to->attn_norm_bias, names.attn_norm, hidden);
      if (spec.is_recurrent) {
        Recurrent(*spec_.recurrent, to);
      } else {
        Attention(to);
      }
      if (post_norms) Norm(&to->post_attn_norm, nullptr, names.post_attn_norm, hidden);
    }
    if (spec.has_mlp) {
      Norm(&to->mlp_norm, &to->mlp_norm_bias, names.mlp_norm, hidden);
      if (spec.has_experts) Experts(to);
      if (const int32_t width = spec_.mlp_width(spec); width > 0) Mlp(width, to);
      if (post_norms) Norm(&to->post_mlp_norm, nullptr, names.post_mlp_norm, hidden);
    }
    if (const LayerInputsSpec& inputs = spec_.layer_inputs; inputs.width > 0) {
      Linear(&to->inputs.gate, nullptr, /*has_bias=*/false, hidden, {{inputs.gate, inputs.width}});
      Linear(&to->inputs.up, nullptr, /*has_bias=*/false, inputs.width, {{inputs.up, hidden}});
      Norm(&to->inputs.post_norm, nullptr, inputs.post_norm, hidden);
    }
    if (!names.layer_scale.empty()) Vector(&to->layer_scale, "", 1, {{names.layer_scale, 1}});
  }

  WeightPlan Take() {
    for (const MatrixPlan& matrix : plan_.matrices) KeepUnquantized(matrix);
    return std::move(plan_);
  }

 private:
  struct Piece {
    std::string_view pattern;
    int32_t rows;
  };

  void Attention(LayerWeights* to) {
    if (spec_.latent) return LatentAttention(*spec_.latent, to);
    const TensorNames& names = spec_.names;
    const HeadShape heads = spec_.heads(spec_.layers[static_cast<size_t>(layer_)]);
    const int32_t q_rows = heads.q_width() * (spec_.attn_gate ? 2 : 1);
    const int32_t kv_rows = heads.kv_width();
    const auto project = [&](std::initializer_list<Piece> pieces) {
      Linear(&to->qkv, &to->qkv_bias, spec_.qkv_bias, spec_.hidden_size, pieces);
    };
    if (!names.qkv.empty()) {
      project({{names.qkv, q_rows + 2 * kv_rows}});
    } else if (heads.kv_of_row == KvOfRow::kKeysAndValues) {
      project({{names.q, q_rows}, {names.k, kv_rows}, {names.v, kv_rows}});
    } else if (heads.kv_of_row == KvOfRow::kKeysAsValues) {
      project({{names.q, q_rows}, {names.k, kv_rows}});
    } else {
      project({{names.q, q_rows}});
    }
    const bool rotates = spec_.layers[static_cast<size_t>(layer_)].rope >= 0;
    if (spec_.neighbours_rotate && rotates) {
      InterleaveQueriesAndKeys(plan_.matrices.back().parts, heads.head_dim);
      if (spec_.qkv_bias) InterleaveQueriesAndKeys(plan_.vectors.back().parts, heads.head_dim);
    }
    if (spec_.plain_qk_norm && rotates) {
      plan_.vectors.push_back({&to->q_norm, heads.head_dim, {}});
      plan_.vectors.push_back({&to->k_norm, heads.head_dim, {}});
    }
    if (spec_.qk_norm) {
      const bool all = spec_.qk_norm_all_heads;
      Norm(&to->q_norm, nullptr, names.q_norm, all ? q_rows : heads.head_dim);
      if (heads.kv_of_row != KvOfRow::kNone) {
        Norm(&to->k_norm, nullptr, names.k_norm, all ? kv_rows : heads.head_dim);
      }
    }
    if (spec_.attn_sinks) Vector(&to->sinks, "", 0, {{names.sinks, spec_.n_heads}});
    Linear(&to->o, &to->o_bias, spec_.o_bias, heads.q_width(), {{names.o, spec_.hidden_size}});
  }

  // parts: of q, k and v
  void InterleaveQueriesAndKeys(std::span<const WeightPart> parts, int32_t head_dim) {
    for (const WeightPart& part : parts.first(2)) {
      plan_.requests[part.request].interleaved_head = head_dim;
    }
  }

  void LatentAttention(const LatentSpec& latent, LayerWeights* to) {
    LatentWeights& w = to->latent;
    const int32_t hidden = spec_.hidden_size, n_heads = spec_.n_heads;
    int32_t q_inputs = hidden;
    if (latent.q_rank > 0) {
      Linear(&w.q_down, nullptr, /*has_bias=*/false, hidden, {{latent.q_down, latent.q_rank}});
      Norm(&w.q_norm, nullptr, latent.q_norm, latent.q_rank);
      q_inputs = latent.q_rank;
    }
    Linear(&w.q, nullptr, /*has_bias=*/false, q_inputs, {{latent.q, n_heads * latent.query_dim()}});
    Linear(&w.kv_down, nullptr, /*has_bias=*/false, hidden,
           {{latent.kv_down, latent.latent_dim()}});
    Norm(&w.kv_norm, nullptr, latent.kv_norm, latent.kv_rank);
    KeysAndValues(latent, &w);
    Linear(&to->o, nullptr, /*has_bias=*/false, n_heads * latent.value_dim,
           {{spec_.names.o, hidden}});
  }

  // The rows of a head in kv_up are those of K, then those of V.
  void KeysAndValues(const LatentSpec& latent, LatentWeights* to) {
    const int32_t n_heads = spec_.n_heads, of_head = latent.nope_dim + latent.value_dim;
    const size_t request =
        Request(WithNumber(latent.kv_up, layer_) + ".weight", n_heads * of_head, latent.kv_rank,
                /*is_vector=*/false, 0, MatrixSpread(latent.kv_rank));
    plan_.requests[request].is_split = true;
    MatrixPlan keys{&to->keys_transposed, n_heads * latent.kv_rank, latent.nope_dim, {}};
    MatrixPlan values{&to->values, n_heads * latent.value_dim, latent.kv_rank, {}};
    for (int32_t h = 0; h < n_heads; ++h) {
      keys.parts.push_back({.request = request,
                            .first_row = h * latent.kv_rank,
                            .from_row = h * of_head,
                            .n_rows = latent.nope_dim,
                            .transposed = true});
      values.parts.push_back({.request = request,
                              .first_row = h * latent.value_dim,
                              .from_row = h * of_head + latent.nope_dim,
                              .n_rows = latent.value_dim});
    }
    plan_.matrices.push_back(std::move(keys));
    plan_.matrices.push_back(std::move(values));
  }

  void Recurrent(const RecurrentSpec& recurrent, LayerWeights* to) {
    const RecurrentShape& shape = recurrent.shape;
    const int32_t hidden = spec_.hidden_size;
    // --quantize leaves this matrix as it is: rows of it decide how fast a state decays.
    if (shape.is_state_space()) {
      Matrix(&to->qkv, hidden, {{recurrent.all, shape.projected_width()}});
    } else if (recurrent.qkvz.empty()) {
      Matrix(&to->qkv, hidden,
             {{recurrent.qkv, shape.n_channels()},
              {recurrent.z, shape.values_width()},
              {recurrent.b, shape.n_value_heads},
              {recurrent.a, shape.n_value_heads}});
    } else {
      Matrix(&to->qkv, hidden,
             {{recurrent.qkvz, shape.qkvz_width()}, {recurrent.ba, shape.ba_width()}});
    }
    RecurrentWeights& vectors = to->recurrent;
    Vector(&vectors.conv, ".weight", 0, {{recurrent.conv, shape.n_channels() * shape.conv_width}});
    plan_.requests.back().shape = {shape.n_channels(), 1, shape.conv_width};
    plan_.requests.back().dummy_spread = 1;
    if (recurrent.conv_bias) {
      Vector(&vectors.conv_bias, ".bias", 0, {{recurrent.conv, shape.n_channels()}});
    }
    Vector(&vectors.a_log, "", 0, {{recurrent.a_log, shape.n_value_heads}});
    Vector(&vectors.dt_bias, "", 1, {{recurrent.dt_bias, shape.n_value_heads}});
    if (shape.is_state_space()) {
      Vector(&vectors.skip, "", 1, {{recurrent.skip, shape.n_value_heads}});
    }
    Vector(&vectors.norm, ".weight", 1, {{recurrent.norm, shape.norm_width()}});
    Linear(&to->o, nullptr, /*has_bias=*/false, shape.values_width(), {{recurrent.out, hidden}});
  }

  // Before the first layer.
  void LayerInputs() {
    const LayerInputsSpec& inputs = spec_.layer_inputs;
    const int32_t width = spec_.n_layers() * inputs.width;
    Matrix(&weights_->input_embed, width, {{inputs.embed, spec_.vocab_size}});
    Matrix(&weights_->input_project, spec_.hidden_size, {{inputs.project, width}});
    Norm(&weights_->input_norm, nullptr, inputs.project_norm, inputs.width);
    plan_.vectors.back().factor = kInputShare;
  }

  void Mlp(int32_t width, LayerWeights* to) {
    const TensorNames& names = spec_.names;
    const int32_t hidden = spec_.hidden_size;
    if (!spec_.gated_mlp) {
      Linear(&to->up, &to->up_bias, spec_.mlp_bias, hidden, {{names.up, width}});
    } else if (names.gate_up.empty()) {
      Linear(&to->up, &to->up_bias, spec_.mlp_bias, hidden,
             {{names.gate, width}, {names.up, width}});
    } else {
      Linear(&to->up, &to->up_bias, spec_.mlp_bias, hidden, {{names.gate_up, 2 * width}});
    }
    Linear(&to->down, &to->down_bias, spec_.mlp_bias, width, {{names.down, hidden}});
  }

  void Experts(LayerWeights* to) {
    const TensorNames& names = spec_.names;
    const ExpertSpec& experts = spec_.experts;
    const int32_t hidden = spec_.hidden_size, width = experts.intermediate_size;
    // Not a linear layer for --quantize: a small error would choose other experts.
    Matrix(&to->router, hidden, {{names.router, experts.n_experts}});
    if (experts.router_bias) {
      Vector(&to->router_bias, ".bias", 0, {{names.router, experts.n_experts}});
    }
    if (!names.router_correction.empty()) {
      Vector(&to->router_correction, "", 0, {{names.router_correction, experts.n_experts}});
    }
    if (spec_.shared_expert.intermediate_size > 0) SharedExpert(&to->shared_expert);
    if (!names.expert_scales.empty()) {
      Vector(&to->expert_scales, "", 1, {{names.expert_scales, experts.n_experts}});
    }
    if (experts.beside_mlp) {
      Vector(&to->router_norm, "", 1, {{names.router_norm, hidden}});
      plan_.vectors.back().factor = 1 / std::sqrt(static_cast<float>(hidden));
      Norm(&to->expert_norm, nullptr, names.expert_norm, hidden);
      Norm(&to->post_expert_norm, nullptr, names.post_expert_norm, hidden);
      Norm(&to->post_dense_norm, nullptr, names.post_dense_norm, hidden);
    }
    to->expert_up.resize(static_cast<size_t>(experts.n_experts));
    to->expert_down.resize(static_cast<size_t>(experts.n_experts));
    if (names.expert_up.empty()) {
      StackedExperts(to);
      return;
    }
    for (int32_t e = 0; e < experts.n_experts; ++e) {
      const auto name = [&](std::string_view pattern) {
        return WithNumber(WithNumber(pattern, layer_), e);
      };
      GateAndUp(name(names.expert_gate), name(names.expert_up), width,
                &to->expert_up[static_cast<size_t>(e)]);
      LastIsOfExpert(e);
      MayBeFused(names.fused_expert_up, experts.n_experts, e);
      MayBeStacked(names.stacked_gate_up, experts.n_experts, e);
      const std::string down = name(names.expert_down);
      Linear(&to->expert_down[static_cast<size_t>(e)], nullptr, /*has_bias=*/false, width,
             {{down, hidden}});
      LastIsOfExpert(e);
      MayBeFused(names.fused_expert_down, experts.n_experts, e);
      MayBeStacked(names.stacked_down, experts.n_experts, e);
    }
  }

  // Without a gate, only the rows of `up`.
  void GateAndUp(std::string_view gate, std::string_view up, int32_t width, kernels::Matrix* to) {
    const int32_t hidden = spec_.hidden_size;
    if (spec_.gated_mlp) {
      Linear(to, nullptr, /*has_bias=*/false, hidden, {{gate, width}, {up, width}});
    } else {
      Linear(to, nullptr, /*has_bias=*/false, hidden, {{up, width}});
    }
  }

  // A device keeps no quantized part that begins elsewhere than at a multiple of kPartRows. So
  // quantizing such a matrix would cost accuracy, and save no memory.
  void KeepUnquantized(const MatrixPlan& matrix) {
    const bool begin_aligned = std::all_of(
        matrix.parts.begin(), matrix.parts.end(),
        [](const WeightPart& part) { return part.first_row % kernels::kPartRows == 0; });
    if (begin_aligned) return;
    for (const WeightPart& part : matrix.parts) plan_.requests[part.request].is_linear = false;
  }

  // The matrix planned last belongs to an expert, alone or in tensors of all experts.
  void LastIsOfExpert(int32_t expert) {
    MatrixPlan& matrix = plan_.matrices.back();
    matrix.is_expert = true;
    if (WithNumber(spec_.names.expert_down, 0).find("{}") != std::string::npos) return;
    for (const WeightPart& part : matrix.parts) {
      TensorRequest& request = plan_.requests[part.request];
      request.shape = {spec_.experts.n_experts, request.rows, request.cols};
      request.first_row = expert * request.rows;
    }
  }

  // The matrix planned last may be number `index` of `n` in one tensor.
  void MayBeFused(std::string_view pattern, int32_t n, int32_t index) {
    if (pattern.empty()) return;
    const MatrixPlan& matrix = plan_.matrices.back();
    for (const WeightPart& part : matrix.parts) {
      TensorRequest& request = plan_.requests[part.request];
      request.fused_name = WithNumber(pattern, layer_);
      request.fused_shape = {n, matrix.rows, matrix.cols};
      request.fused_first_row = int64_t{index} * matrix.rows + part.first_row;
    }
  }

  // The same, in a tensor of stacked matrices.
  void MayBeStacked(std::string_view pattern, int32_t n, int32_t index) {
    if (pattern.empty()) return;
    const std::vector<WeightPart>& parts = plan_.matrices.back().parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      TensorRequest& request = plan_.requests[parts[i].request];
      request.fused_name = WithNumber(pattern, layer_);
      request.fused_place = {.expert = index,
                             .n_experts = n,
                             .turn = static_cast<int32_t>(i),
                             .n_turns = static_cast<int32_t>(parts.size()),
                             .in_turns = !spec_.names.gate_before_up};
    }
  }

  void SharedExpert(SharedExpertWeights* to) {
    const SharedExpertSpec& shared = spec_.shared_expert;
    const int32_t hidden = spec_.hidden_size, width = shared.intermediate_size;
    if (!shared.row_gate.empty()) Matrix(&to->row_gate, hidden, {{shared.row_gate, 1}});
    GateAndUp(shared.gate, shared.up, width, &to->up);
    Linear(&to->down, nullptr, /*has_bias=*/false, width, {{shared.down, hidden}});
  }

  // Experts in tensors that hold all of them.
  void StackedExperts(LayerWeights* to) {
    const ExpertSpec& experts = spec_.experts;
    const int32_t hidden = spec_.hidden_size, width = experts.intermediate_size;
    const std::string up = WithNumber(spec_.names.stacked_gate_up, layer_);
    const std::string down = WithNumber(spec_.names.stacked_down, layer_);
    VectorPlan up_bias{&to->expert_up_bias, 0, {}}, down_bias{&to->expert_down_bias, 0, {}};
    for (int32_t e = 0; e < experts.n_experts; ++e) {
      const auto place = [&](int32_t turn, int32_t n_turns) {
        return ExpertPlace{.expert = e,
                           .n_experts = experts.n_experts,
                           .turn = turn,
                           .n_turns = n_turns,
                           .in_turns = !spec_.names.gate_before_up};
      };
      const ExpertPlace gate_place = place(0, 2), up_place = place(1, 2), down_place = place(0, 1);
      const size_t at = static_cast<size_t>(e);
      StackedMatrix(&to->expert_up[at], up, width, hidden, {gate_place, up_place});
      StackedMatrix(&to->expert_down[at], down, hidden, width, {down_place});
      if (!experts.biases) continue;
      StackedVector(&up_bias, up + "_bias", width, {gate_place, up_place});
      StackedVector(&down_bias, down + "_bias", hidden, {down_place});
    }
    if (!experts.biases) return;
    plan_.vectors.push_back(std::move(up_bias));
    plan_.vectors.push_back(std::move(down_bias));
  }

  // rows: of each place
  void StackedMatrix(kernels::Matrix* target, const std::string& name, int32_t rows, int32_t cols,
                     std::initializer_list<ExpertPlace> places) {
    MatrixPlan matrix{target, 0, cols, {}, /*is_expert=*/true};
    for (const ExpertPlace& place : places) {
      const size_t request = Request(name, rows, cols, /*is_vector=*/false, 0, MatrixSpread(cols));
      plan_.requests[request].place = place;
      plan_.requests[request].transposed = true;
      plan_.requests[request].is_linear = true;
      matrix.parts.push_back({request, matrix.rows});
      matrix.rows += rows;
    }
    plan_.matrices.push_back(std::move(matrix));
  }

  void StackedVector(VectorPlan* vector, const std::string& name, int32_t n,
                     std::initializer_list<ExpertPlace> places) {
    for (const ExpertPlace& place : places) {
      const size_t request = Request(name, 1, n, /*is_vector=*/true, 0, kDummyVectorSpread);
      plan_.requests[request].place = place;
      vector->parts.push_back({request, vector->n});
      vector->n += n;
    }
  }

  // A uniform distribution of half-width sqrt(3 / fan_in) has a standard deviation of 1 /
  // sqrt(fan_in).
  static float MatrixSpread(int32_t cols) { return std::sqrt(3.0f / static_cast<float>(cols)); }

  size_t Request(std::string name, int64_t rows, int64_t cols, bool is_vector, float center,
                 float spread) {
    plan_.requests.push_back({.name = std::move(name),
                              .rows = rows,
                              .cols = cols,
                              .is_vector = is_vector,
                              .dummy_center = center,
                              .dummy_spread = spread,
                              .quantization = spec_.quantization});
    return plan_.requests.size() - 1;
  }

  // is_linear: --quantize applies to it.
  void Matrix(kernels::Matrix* target, int32_t cols, std::initializer_list<Piece> pieces,
              bool transposed = false, bool is_linear = false) {
    MatrixPlan matrix{target, 0, cols, {}, /*is_expert=*/false};
    for (const Piece& piece : pieces) {
      const size_t request =
          Request(WithNumber(piece.pattern, layer_) + ".weight", piece.rows, cols,
                  /*is_vector=*/false, 0, MatrixSpread(cols));
      plan_.requests[request].transposed = transposed;
      plan_.requests[request].is_linear = is_linear;
      matrix.parts.push_back({request, matrix.rows});
      matrix.rows += piece.rows;
    }
    plan_.matrices.push_back(std::move(matrix));
  }

  void Vector(kernels::Buffer* target, std::string_view suffix, float center,
              std::initializer_list<Piece> pieces) {
    VectorPlan vector{target, 0, {}};
    for (const Piece& piece : pieces) {
      const size_t request = Request(WithNumber(piece.pattern, layer_) + std::string(suffix), 1,
                                     piece.rows, /*is_vector=*/true, center, kDummyVectorSpread);
      vector.parts.push_back({request, vector.n});
      vector.n += piece.rows;
    }
    plan_.vectors.push_back(std::move(vector));
  }

  void Linear(kernels::Matrix* target, kernels::Buffer* bias, bool has_bias, int32_t cols,
              std::initializer_list<Piece> pieces) {
    Matrix(target, cols, pieces, spec_.transposed_linears, /*is_linear=*/true);
    if (has_bias) Vector(bias, ".bias", 0, pieces);
  }

  void Norm(kernels::Buffer* target, kernels::Buffer* bias, std::string_view pattern,
            int32_t width) {
    Vector(target, ".weight", spec_.norm == NormKind::kRmsPlusOne ? 0.0f : 1.0f,
           {{pattern, width}});
    if (bias != nullptr && spec_.norm == NormKind::kLayerNorm) {
      Vector(bias, ".bias", 0, {{pattern, width}});
    }
  }

  const ModelSpec& spec_;
  StageWeights* weights_;
  int32_t layer_ = 0;
  WeightPlan plan_;
};

}  // namespace

WeightPlan PlanWeights(const StageModelOptions& options, const ModelSpec& spec,
                       StageWeights* weights) {
  weights->layers.resize(static_cast<size_t>(options.n_layers));
  Planner planner(spec, weights);
  for (int32_t i = 0; i < options.n_layers; ++i) {
    planner.Layer(options.first_layer + i, &weights->layers[static_cast<size_t>(i)]);
  }
  planner.Ends(options.is_first, options.is_last);
  return planner.Take();
}

}  // namespace stagecoach::worker
