// The states of a stage's recurrent layers. The working state of a sequence has the number of its
// slot; further states are copies that later sequences may begin with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

class RecurrentStates {
 public:
  // Covers layers [first_layer, first_layer + n_layers) of `spec`, which must outlive this.
  RecurrentStates(const ModelSpec& spec, int32_t first_layer, int32_t n_layers);

  // Frees the previous allocation first. Does nothing if no layer is recurrent.
  absl::Status Allocate(uint64_t n_states, kernels::Ops* ops);
  // [n_states, state_elements] of layer first_layer + i. REQUIRES: it is recurrent; Allocate().
  float* layer(int32_t i) const;
  // The layers' parts of a state.
  std::vector<KvPart> parts() const;
  // parts()[part] of this state. REQUIRES: Allocate().
  float* state(size_t part, uint64_t number) const;
  // In all layers.
  void Copy(std::span<const kernels::StateCopy> copies, kernels::Ops* ops) const;

 private:
  int64_t n_elements() const { return spec_.recurrent->shape.state_elements(); }

  const ModelSpec& spec_;
  const int32_t first_layer_;
  std::vector<int32_t> index_;  // by layer: its number among the recurrent ones; -1: it is none
  int32_t n_recurrent_ = 0;
  uint64_t n_states_ = 0;
  kernels::Buffer memory_;  // [n_recurrent, n_states, state_elements]
};

}  // namespace stagecoach::worker
