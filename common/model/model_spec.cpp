#include "common/model/model_spec.h"

namespace stagecoach {

double ModelSpec::WeightsOfEveryRow(const LayerSpec& layer) const {
  const double hidden = hidden_size;
  double mixing = 0;
  if (!layer.has_mixer) {
    mixing = 0;
  } else if (layer.is_recurrent) {
    mixing = 1.0 * recurrent->shape.projected_width() + recurrent->shape.values_width();
  } else if (latent) {
    // K and V of a head multiply every row, too.
    const double up = 1.0 * n_heads * (latent->nope_dim + latent->value_dim) * latent->kv_rank;
    const double queries = 1.0 * n_heads * latent->query_dim();
    const double q = latent->q_rank > 0 ? latent->q_rank * (1 + queries / hidden) : queries;
    mixing = q + latent->latent_dim() + up / hidden + 1.0 * n_heads * latent->value_dim;
  } else {
    const HeadShape shape = heads(layer);
    mixing = (attn_gate ? 2.0 : 1.0) * shape.q_width() + shape.qkv_width();
  }
  const double shared = layer.has_experts ? shared_expert.intermediate_size : 0;
  const double mlp = (gated_mlp ? 3.0 : 2.0) * (mlp_width(layer) + shared);
  return hidden * (mixing + mlp + 2.0 * layer_inputs.width);
}

double ModelSpec::WeightsOfExperts() const {
  return (gated_mlp ? 3.0 : 2.0) * hidden_size * experts.intermediate_size * experts.n_experts;
}

}  // namespace stagecoach
