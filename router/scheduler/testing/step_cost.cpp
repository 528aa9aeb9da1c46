#include "router/scheduler/testing/step_cost.h"

#include <cmath>

namespace stagecoach::router {
namespace {

// GEMM kernels process rows in tiles; special kernels handle less than one tile. The fastest
// kernels take two tiles at once, so an odd number of tiles costs half a tile more.
constexpr int32_t kTileRows = 128;

double TiledRows(int32_t n_rows) {
  if (n_rows <= kTileRows) return n_rows;
  const int32_t n_tiles = (n_rows + kTileRows - 1) / kTileRows;
  return kTileRows * (n_tiles + (n_tiles % 2 == 1 ? 0.5 : 0.0));
}

}  // namespace

StepWork WorkOf(const v1::StepPlan& plan) {
  StepWork work;
  for (const v1::SlotDelta& delta : plan.slots()) {
    const auto n_tokens = static_cast<int32_t>(delta.n_tokens());
    work.n_rows += n_tokens;
    work.n_sampled += delta.sample() ? 1 : 0;
    if (n_tokens == 1) {
      work.decode_keys += delta.start() + 1.0;
    } else {
      work.n_prefill += n_tokens;
      work.chunk_pairs += n_tokens * (delta.start() + (n_tokens + 1) / 2.0);
    }
  }
  return work;
}

StageCost::StageCost(const ModelShape& shape, const DeviceSpeed& speed, int32_t n_layers,
                     bool has_head)
    : shape_(shape), speed_(speed), n_layers_(n_layers), has_head_(has_head) {}

double StageCost::ProductSeconds(double n_parameters, int32_t n_rows) const {
  if (n_rows == 0) return 0;
  const double read = n_parameters * shape_.bytes_a_parameter / speed_.weight_bytes_per_s;
  const double multiply = 2 * n_parameters * TiledRows(n_rows) / speed_.product_flops_per_s;
  return std::sqrt(read * read + multiply * multiply);
}

double StageCost::Seconds(const StepWork& work) const {
  const double products = ProductSeconds(n_layers_ * shape_.layer_parameters, work.n_rows);
  const double head = has_head_ ? ProductSeconds(shape_.head_parameters, work.n_sampled) : 0;
  const double chunks =
      4 * work.chunk_pairs * shape_.attention_width * n_layers_ / speed_.attention_flops_per_s;
  const double decodes = work.decode_keys * shape_.kv_bytes * n_layers_ / speed_.kv_bytes_per_s;
  return products + head + chunks + decodes;
}

double StageCost::HopSeconds(const StepWork& work) const {
  return speed_.hop_s + work.n_rows * speed_.hop_s_a_row;
}

}  // namespace stagecoach::router
