#include "common/model/model_spec.h"

namespace stagecoach {

double ModelSpec::WeightsOfEveryRow(const LayerSpec& layer) const {
  const double hidden = hidden_size;
  double mixing = 0;
  if (layer.is_recurrent) {
    mixing = 1.0 * recurrent->shape.projected_width() + recurrent->shape.values_width();
  } else {
    const HeadShape shape = heads(layer);
    mixing = (attn_gate ? 2.0 : 1.0) * shape.q_width() + shape.qkv_width();
  }
  const double mlp = mlp_width(layer) * (gated_mlp ? 3.0 : 2.0);
  const double shared = layer.has_experts ? 3.0 * shared_expert.intermediate_size : 0;
  return hidden * (mixing + mlp + shared + 2.0 * layer_inputs.width);
}

}  // namespace stagecoach
