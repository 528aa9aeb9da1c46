#include "worker/model/decoder.h"

namespace stagecoach::worker {
namespace {

using kernels::Buffer;
using kernels::Matrix;

class LayerRun {
 public:
  LayerRun(const ModelSpec& spec, const LayerInputs& inputs, const DeviceBatch& batch,
           const LayerScratch& scratch, float* hidden, kernels::Ops* ops)
      : spec_(spec),
        in_(inputs),
        w_(inputs.weights),
        batch_(batch),
        scratch_(scratch),
        hidden_(hidden),
        ops_(ops) {}

  void Attention() {
    Norm(hidden_, w_.attn_norm, w_.attn_norm_bias, scratch_.normed, /*add_to_out=*/false);
    Gemm(scratch_.normed, w_.qkv, w_.qkv_bias, scratch_.qkv, /*add_to_y=*/false);
    const DeviceBatch::Group& group = batch_.group(in_.layer.kv_group);
    ops_->RopeAppend({.qkv = scratch_.qkv,
                      .positions = batch_.positions(),
                      .kv_slots = group.kv_slots,
                      .rope = in_.rope,
                      .q_norm = w_.q_norm.As<float>(),
                      .k_norm = w_.k_norm.As<float>(),
                      .norm_kind = spec_.norm,
                      .norm_eps = static_cast<float>(spec_.norm_eps),
                      .kv = in_.kv,
                      .n_tokens = batch_.n_tokens(),
                      .n_heads = spec_.n_heads,
                      .n_kv_heads = spec_.n_kv_heads,
                      .head_dim = spec_.head_dim});
    ops_->Attention({.qkv = scratch_.qkv,
                     .kv = in_.kv,
                     .seq_starts = batch_.seq_starts(),
                     .seq_positions = batch_.seq_positions(),
                     .block_tables = group.block_tables,
                     .block_table_stride = group.block_table_stride,
                     .out = scratch_.attn,
                     .n_seqs = batch_.n_seqs(),
                     .n_heads = spec_.n_heads,
                     .n_kv_heads = spec_.n_kv_heads,
                     .head_dim = spec_.head_dim,
                     .scale = spec_.attn_scale,
                     .softcap = spec_.attn_softcap,
                     .window = spec_.kv_groups[in_.layer.kv_group].window});
    AddToHidden(scratch_.attn, w_.o, w_.o_bias, w_.post_attn_norm);
  }

  void Mlp() {
    Norm(hidden_, w_.mlp_norm, w_.mlp_norm_bias, scratch_.normed, /*add_to_out=*/false);
    Gemm(scratch_.normed, w_.up, w_.up_bias, scratch_.mlp, /*add_to_y=*/false);
    ops_->Activate({.x = scratch_.mlp,
                    .out = scratch_.activation,
                    .n_rows = batch_.n_tokens(),
                    .width = spec_.intermediate_size,
                    .kind = spec_.activation,
                    .gated = spec_.gated_mlp});
    AddToHidden(scratch_.activation, w_.down, w_.down_bias, w_.post_mlp_norm);
  }

 private:
  void Norm(const float* x, const Buffer& weight, const Buffer& bias, float* out, bool add_to_out) {
    ops_->Norm({.x = x,
                .weight = weight.As<float>(),
                .bias = bias.As<float>(),
                .out = out,
                .n_rows = batch_.n_tokens(),
                .width = spec_.hidden_size,
                .kind = spec_.norm,
                .eps = static_cast<float>(spec_.norm_eps),
                .add_to_out = add_to_out});
  }

  void Gemm(const float* x, const Matrix& w, const Buffer& bias, float* y, bool add_to_y) {
    ops_->Gemm({.x = x,
                .w = &w,
                .bias = bias.As<float>(),
                .y = y,
                .n_rows = batch_.n_tokens(),
                .add_to_y = add_to_y});
  }

  // The end of a block: its output matrix, and its post norm where the model has one.
  void AddToHidden(const float* x, const Matrix& w, const Buffer& bias, const Buffer& post_norm) {
    if (!spec_.post_norms) {
      Gemm(x, w, bias, hidden_, /*add_to_y=*/true);
      return;
    }
    Gemm(x, w, bias, scratch_.normed, /*add_to_y=*/false);
    Norm(scratch_.normed, post_norm, Buffer{}, hidden_, /*add_to_out=*/true);
  }

  const ModelSpec& spec_;
  const LayerInputs& in_;
  const LayerWeights& w_;
  const DeviceBatch& batch_;
  const LayerScratch& scratch_;
  float* hidden_;
  kernels::Ops* ops_;
};

}  // namespace

void RunLayer(const ModelSpec& spec, const LayerInputs& inputs, const DeviceBatch& batch,
              const LayerScratch& scratch, float* hidden, kernels::Ops* ops) {
  LayerRun run(spec, inputs, batch, scratch, hidden, ops);
  run.Attention();
  run.Mlp();
}

}  // namespace stagecoach::worker
