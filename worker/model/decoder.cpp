#include "worker/model/decoder.h"

#include "common/check.h"

namespace stagecoach::worker {
namespace {

using kernels::Act;
using kernels::Buffer;
using kernels::ConstAct;
using kernels::Matrix;

class LayerRun {
 public:
  LayerRun(const ModelSpec& spec, const LayerInputs& inputs, const kernels::StepInputs& step,
           const LayerScratch& scratch, float* hidden, kernels::Ops* ops)
      : spec_(spec),
        in_(inputs),
        w_(inputs.weights),
        heads_(inputs.layer.has_attention() ? spec.heads(inputs.layer) : HeadShape{}),
        step_(step),
        scratch_(scratch),
        hidden_(hidden),
        ops_(ops) {}

  void AppendKeys() {
    if (!in_.layer.has_mixer) return;
    if (in_.layer.is_recurrent) return Recurrence();
    if (spec_.latent) return AppendLatents(*spec_.latent);
    kernels::GemmArgs qkv =
        Product(scratch_.normed, w_.qkv, w_.qkv_bias,
                spec_.attn_gate ? Act(scratch_.projected) : scratch_.qkv, /*add_to_y=*/false);
    if (NormsInput()) {
      ops_->NormGemm(InputNorm(w_.attn_norm, w_.attn_norm_bias), qkv);
    } else {
      qkv.x = PlainInput();
      ops_->Gemm(qkv);
    }
    if (spec_.attn_gate) {
      ops_->SplitGate({.projected = scratch_.projected,
                       .qkv = scratch_.qkv,
                       .gate = scratch_.mixed,
                       .n_tokens = step_.n_tokens,
                       .n_heads = heads_.n_heads,
                       .n_kv_heads = heads_.n_kv_heads,
                       .head_dim = heads_.head_dim});
    }
    ops_->RopeAppend({.qkv = scratch_.qkv,
                      .positions = step_.positions,
                      .kv_slots = step_.groups[static_cast<size_t>(in_.layer.kv_group)].kv_slots,
                      .rope = in_.rope,
                      .q_norm = w_.q_norm.As<float>(),
                      .k_norm = w_.k_norm.As<float>(),
                      .norm_kind = spec_.norm,
                      .norm_eps = static_cast<float>(spec_.norm_eps),
                      .kv = in_.kv,
                      .n_tokens = step_.n_tokens,
                      .n_heads = heads_.n_heads,
                      .n_kv_heads = heads_.n_kv_heads,
                      .head_dim = heads_.head_dim,
                      .norms_all_heads = spec_.qk_norm_all_heads,
                      .query_scaling = Scaling(),
                      .norms_v = spec_.v_norm,
                      .kv_of_row = heads_.kv_of_row});
  }

  void Attention() {
    if (!in_.layer.has_mixer) return;
    if (in_.layer.is_recurrent) {
      // AppendKeys has computed it.
      AddToHidden(scratch_.attn, w_.o, w_.o_bias, w_.post_attn_norm);
      return;
    }
    ops_->Attention({.qkv = scratch_.qkv,
                     .kv = in_.kv,
                     .step = &step_,
                     .group = in_.layer.kv_group,
                     .out = scratch_.attn,
                     .n_heads = heads_.n_heads,
                     .n_kv_heads = heads_.n_kv_heads,
                     .head_dim = heads_.head_dim,
                     .scale = spec_.attn_scale,
                     .softcap = spec_.attn_softcap,
                     .window = spec_.kv_groups[in_.layer.kv_group].window,
                     .sinks = w_.sinks.As<float>(),
                     .kv_of_row = heads_.kv_of_row,
                     .value_dim = heads_.value_dim});
    if (spec_.latent) {
      ValuesOfLatents(*spec_.latent);
      AddToHidden(scratch_.head_rows, w_.o, w_.o_bias, w_.post_attn_norm);
      return;
    }
    if (spec_.attn_gate) Gate(scratch_.attn, scratch_.mixed, heads_.q_width());
    AddToHidden(scratch_.attn, w_.o, w_.o_bias, w_.post_attn_norm);
    NormSum(w_.attn_norm, w_.attn_norm_bias);
  }

  void Mlp() {
    if (!in_.layer.has_mlp) return;
    if (in_.layer.has_experts && spec_.experts.beside_mlp) {
      ExpertsBesideMlp();
    } else if (in_.layer.has_experts) {
      SC_CHECK(spec_.norm_placement == NormPlacement::kBefore);  // x must not alias hidden
      const ConstAct x = scratch_.normed;
      ops_->NormRoute(InputNorm(w_.mlp_norm, w_.mlp_norm_bias), RouterProduct(x), Routing());
      const bool has_shared = spec_.shared_expert.intermediate_size > 0;
      if (has_shared && spec_.experts.scales_input) SharedExpert(x);
      if (spec_.experts.scales_input) ScaleByChosen(scratch_.normed);
      Experts(x, hidden_, /*clears_out=*/false);
      if (has_shared && !spec_.experts.scales_input) SharedExpert(x);
    } else {
      UpAndActivate();
      AddToHidden(scratch_.activation, w_.down, w_.down_bias, w_.post_mlp_norm);
    }
    NormSum(w_.mlp_norm, w_.mlp_norm_bias);
  }

  // What comes after attention and MLP.
  void End() {
    if (in_.row_inputs != nullptr) AddInputs();
    if (w_.layer_scale.bytes > 0) {
      ops_->Scale(hidden_, int64_t{step_.n_tokens} * spec_.hidden_size, w_.layer_scale.As<float>());
    }
  }

 private:
  // scratch_.activation = the MLP for hidden up to its output matrix
  void UpAndActivate() {
    kernels::GemmArgs up =
        Product(scratch_.normed, w_.up, w_.up_bias, scratch_.mlp, /*add_to_y=*/false);
    const kernels::ActivationArgs activation{.x = scratch_.mlp,
                                             .out = scratch_.activation,
                                             .n_rows = step_.n_tokens,
                                             .width = spec_.mlp_width(in_.layer),
                                             .kind = spec_.activation,
                                             .gated = spec_.gated_mlp};
    if (NormsInput()) {
      ops_->NormGemmActivate(InputNorm(w_.mlp_norm, w_.mlp_norm_bias), up, activation);
    } else {
      up.x = PlainInput();
      ops_->GemmActivate(up, activation);
    }
  }

  // hidden += norm(norm(mlp) + norm(experts)), where all three read hidden
  void ExpertsBesideMlp() {
    SC_CHECK(spec_.norm_placement == NormPlacement::kBeforeAndAfter);
    const Act normed = scratch_.normed, sum = scratch_.dense_out;
    UpAndActivate();
    Gemm(scratch_.activation, w_.down, w_.down_bias, normed, /*add_to_y=*/false);
    ops_->Norm(Normed(normed, w_.post_dense_norm, Buffer{}, sum, /*add_to_out=*/false));
    ops_->NormRoute(InputNorm(w_.router_norm, Buffer{}), RouterProduct(normed), Routing());
    ops_->Norm(InputNorm(w_.expert_norm, Buffer{}));
    Experts(normed, scratch_.expert_out, /*clears_out=*/true);
    ops_->Norm(Normed(Act(scratch_.expert_out), w_.post_expert_norm, Buffer{}, sum,
                      /*add_to_out=*/true));
    ops_->Norm(Normed(sum, w_.post_mlp_norm, Buffer{}, hidden_, /*add_to_out=*/true));
  }

  // See LayerInputsSpec.
  void AddInputs() {
    Gemm(PlainInput(), w_.inputs.gate, Buffer{}, scratch_.mlp, /*add_to_y=*/false);
    ops_->Activate({.x = scratch_.mlp,
                    .out = scratch_.mlp,
                    .n_rows = step_.n_tokens,
                    .width = spec_.layer_inputs.width,
                    .kind = spec_.activation,
                    .gated = false,
                    .up = in_.row_inputs,
                    .up_stride = in_.row_inputs_stride});
    Gemm(scratch_.mlp, w_.inputs.up, Buffer{}, scratch_.normed, /*add_to_y=*/false);
    ops_->Norm(
        Normed(scratch_.normed, w_.inputs.post_norm, Buffer{}, hidden_, /*add_to_out=*/true));
  }

  // Latents to the cache, and queries for them to scratch_.qkv: see LatentSpec.
  void AppendLatents(const LatentSpec& latent) {
    SC_CHECK(spec_.norm_placement == NormPlacement::kBefore);
    const LatentWeights& w = w_.latent;
    const Act x = scratch_.normed, queries = scratch_.head_rows;
    ops_->Norm(InputNorm(w_.attn_norm, w_.attn_norm_bias));
    Gemm(x, w.kv_down, Buffer{}, scratch_.latents, /*add_to_y=*/false);
    if (latent.q_rank > 0) {
      Gemm(x, w.q_down, Buffer{}, scratch_.q_latents, /*add_to_y=*/false);
      kernels::NormArgs norm =
          Normed(scratch_.q_latents, w.q_norm, Buffer{}, x, /*add_to_out=*/false);
      norm.width = latent.q_rank;
      norm.eps = kLatentNormEps;
      ops_->NormGemm(norm, Product(x, w.q, Buffer{}, queries, /*add_to_y=*/false));
    } else {
      Gemm(x, w.q, Buffer{}, queries, /*add_to_y=*/false);
    }
    ops_->HeadGemm({.x = queries,
                    .w = &w.keys_transposed,
                    .y = scratch_.qkv,
                    .n_rows = step_.n_tokens,
                    .n_heads = heads_.n_heads,
                    .x_dim = latent.query_dim(),
                    .y_dim = latent.latent_dim()});
    ops_->LatentAppend({.latents = scratch_.latents,
                        .q = queries,
                        .queries = scratch_.qkv,
                        .positions = step_.positions,
                        .kv_slots = step_.groups[static_cast<size_t>(in_.layer.kv_group)].kv_slots,
                        .rope = in_.rope,
                        .interleaved = latent.interleaved,
                        .norm = w.kv_norm.As<float>(),
                        .norm_eps = kLatentNormEps,
                        .kv = in_.kv,
                        .n_tokens = step_.n_tokens,
                        .n_heads = heads_.n_heads,
                        .kv_rank = latent.kv_rank,
                        .nope_dim = latent.nope_dim,
                        .rope_dim = latent.rope_dim,
                        .query_scaling = Scaling()});
  }

  QueryScaling Scaling() const {
    return in_.layer.scales_queries ? spec_.query_scaling : QueryScaling{};
  }

  // scratch_.head_rows = the heads' values for sums of latents
  void ValuesOfLatents(const LatentSpec& latent) {
    ops_->HeadGemm({.x = scratch_.attn,
                    .w = &w_.latent.values,
                    .y = scratch_.head_rows,
                    .n_rows = step_.n_tokens,
                    .n_heads = heads_.n_heads,
                    .x_dim = latent.kv_rank,
                    .y_dim = latent.value_dim});
  }

  // A recurrent layer up to its output matrix.
  void Recurrence() {
    SC_CHECK(spec_.norm_placement == NormPlacement::kBefore);
    ops_->NormGemm(InputNorm(w_.attn_norm, w_.attn_norm_bias),
                   Product(scratch_.normed, w_.qkv, Buffer{}, scratch_.projected,
                           /*add_to_y=*/false));
    ops_->Recurrence({.shape = spec_.recurrent->shape,
                      .projected = scratch_.projected,
                      .conv = w_.recurrent.conv.As<float>(),
                      .conv_bias = w_.recurrent.conv_bias.As<float>(),
                      .a_log = w_.recurrent.a_log.As<float>(),
                      .dt_bias = w_.recurrent.dt_bias.As<float>(),
                      .skip = w_.recurrent.skip.As<float>(),
                      .norm = w_.recurrent.norm.As<float>(),
                      .norm_eps = static_cast<float>(spec_.norm_eps),
                      .step = &step_,
                      .states = in_.states,
                      .saves = in_.saves,
                      .mixed = scratch_.mixed,
                      .out = scratch_.attn});
  }

  // x *= sigmoid(gate). gate: [T, width], or [T, 1] if gate_width is 1.
  void Gate(Act x, const float* gate, int32_t width, int32_t gate_width = 0) {
    ops_->SigmoidGate({.x = x,
                       .gate = gate,
                       .n_rows = step_.n_tokens,
                       .width = width,
                       .gate_width = gate_width > 0 ? gate_width : width});
  }

  // x *= the sigmoid of the logit of the row's expert. x: [T, H]
  void ScaleByChosen(Act x) {
    SC_CHECK(spec_.experts.n_used == 1);
    ops_->SigmoidGate({.x = x,
                       .gate = scratch_.router_logits,
                       .n_rows = step_.n_tokens,
                       .width = spec_.hidden_size,
                       .gate_width = spec_.experts.n_experts,
                       .chosen = scratch_.experts});
  }

  kernels::NormArgs Normed(ConstAct x, const Buffer& weight, const Buffer& bias, Act out,
                           bool add_to_out) const {
    return {.x = x,
            .weight = weight.As<float>(),
            .bias = bias.As<float>(),
            .out = out,
            .n_rows = step_.n_tokens,
            .width = spec_.hidden_size,
            .kind = spec_.norm,
            .eps = static_cast<float>(spec_.norm_eps),
            .add_to_out = add_to_out};
  }

  kernels::GemmArgs Product(ConstAct x, const Matrix& w, const Buffer& bias, Act y,
                            bool add_to_y) const {
    return {.x = x,
            .w = &w,
            .bias = bias.As<float>(),
            .y = y,
            .n_rows = step_.n_tokens,
            .add_to_y = add_to_y};
  }
  void Gemm(ConstAct x, const Matrix& w, const Buffer& bias, Act y, bool add_to_y) {
    ops_->Gemm(Product(x, w, bias, y, add_to_y));
  }

  // The input of a block is hidden, normed unless the norms come last.
  bool NormsInput() const { return spec_.norm_placement != NormPlacement::kAfterSum; }
  kernels::NormArgs InputNorm(const Buffer& norm, const Buffer& norm_bias) const {
    return Normed(hidden_, norm, norm_bias, scratch_.normed, /*add_to_out=*/false);
  }
  ConstAct PlainInput() {
    if (scratch_.normed.dtype == DType::kF32) return hidden_;
    ops_->GatherRows({.x = hidden_,
                      .rows = nullptr,
                      .out = scratch_.normed,
                      .n_rows = step_.n_tokens,
                      .width = spec_.hidden_size});
    return scratch_.normed;
  }

  void NormSum(const Buffer& norm, const Buffer& norm_bias) {
    if (spec_.norm_placement != NormPlacement::kAfterSum) return;
    ops_->Norm(Normed(hidden_, norm, norm_bias, hidden_, /*add_to_out=*/false));
  }

  kernels::GemmArgs RouterProduct(ConstAct x) const {
    return Product(x, w_.router, w_.router_bias, scratch_.router_logits, /*add_to_y=*/false);
  }
  kernels::RouteArgs Routing() const {
    return {.logits = scratch_.router_logits,
            .experts = scratch_.experts,
            .weights = scratch_.expert_weights,
            .n_tokens = step_.n_tokens,
            .n_experts = spec_.experts.n_experts,
            .n_used = spec_.experts.n_used,
            .over_used = spec_.experts.weights_over_used,
            .sigmoid = spec_.experts.sigmoid,
            .correction = w_.router_correction.As<float>(),
            .expert_scales = w_.expert_scales.As<float>(),
            .softmax_groups = spec_.experts.softmax_groups};
  }

  // out += output of the routed experts for x: [T, H]
  void Experts(ConstAct x, float* out, bool clears_out) {
    ops_->ExpertMlp({.x = x,
                     .experts = scratch_.experts,
                     .weights = scratch_.expert_weights,
                     .up = w_.expert_up,
                     .down = w_.expert_down,
                     .out = out,
                     .scratch = scratch_.expert_scratch,
                     .n_tokens = step_.n_tokens,
                     .n_used = spec_.experts.n_used,
                     .kind = spec_.activation,
                     .clamped = spec_.clamped_glu,
                     .up_bias = w_.expert_up_bias.As<float>(),
                     .down_bias = w_.expert_down_bias.As<float>(),
                     .clears_out = clears_out,
                     .gated = spec_.gated_mlp});
  }

  // hidden += output of the shared expert for x: [T, H]
  void SharedExpert(ConstAct x) {
    const SharedExpertWeights& w = w_.shared_expert;
    const int32_t width = spec_.shared_expert.intermediate_size;
    ops_->GemmActivate(Product(x, w.up, Buffer{}, scratch_.mlp, /*add_to_y=*/false),
                       {.x = scratch_.mlp,
                        .out = scratch_.activation,
                        .n_rows = step_.n_tokens,
                        .width = width,
                        .kind = spec_.activation,
                        .gated = spec_.gated_mlp});
    if (w.row_gate.rows > 0) {
      // The experts are done with the memory of the router's logits.
      Gemm(x, w.row_gate, Buffer{}, scratch_.router_logits, /*add_to_y=*/false);
      Gate(scratch_.activation, scratch_.router_logits, width, /*gate_width=*/1);
    }
    Gemm(scratch_.activation, w.down, Buffer{}, hidden_, /*add_to_y=*/true);
  }

  // The end of a block: its output matrix, and its post norm if the model has one.
  void AddToHidden(ConstAct x, const Matrix& w, const Buffer& bias, const Buffer& post_norm) {
    if (spec_.norm_placement != NormPlacement::kBeforeAndAfter) {
      Gemm(x, w, bias, hidden_, /*add_to_y=*/true);
      return;
    }
    Gemm(x, w, bias, scratch_.normed, /*add_to_y=*/false);
    ops_->Norm(Normed(scratch_.normed, post_norm, Buffer{}, hidden_, /*add_to_out=*/true));
  }

  const ModelSpec& spec_;
  const LayerInputs& in_;
  const LayerWeights& w_;
  const HeadShape heads_;
  const kernels::StepInputs& step_;
  const LayerScratch& scratch_;
  float* hidden_;
  kernels::Ops* ops_;
};

}  // namespace

void RunLayer(const ModelSpec& spec, const LayerInputs& inputs, const kernels::StepInputs& step,
              const LayerScratch& scratch, float* hidden, kernels::Ops* ops) {
  AppendKeys(spec, inputs, step, scratch, hidden, ops);
  FinishLayer(spec, inputs, step, scratch, hidden, ops);
}

void AppendKeys(const ModelSpec& spec, const LayerInputs& inputs, const kernels::StepInputs& step,
                const LayerScratch& scratch, float* hidden, kernels::Ops* ops) {
  LayerRun(spec, inputs, step, scratch, hidden, ops).AppendKeys();
}

void FinishLayer(const ModelSpec& spec, const LayerInputs& inputs, const kernels::StepInputs& step,
                 const LayerScratch& scratch, float* hidden, kernels::Ops* ops) {
  LayerRun run(spec, inputs, step, scratch, hidden, ops);
  run.Attention();
  run.Mlp();
  run.End();
}

}  // namespace stagecoach::worker
