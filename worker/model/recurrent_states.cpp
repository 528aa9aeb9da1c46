#include "worker/model/recurrent_states.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"
#include "common/status.h"
#include "worker/model/check_room.h"

namespace stagecoach::worker {

RecurrentStates::RecurrentStates(const ModelSpec& spec, int32_t first_layer, int32_t n_layers)
    : spec_(spec), first_layer_(first_layer) {
  for (int32_t i = 0; i < n_layers; ++i) {
    const bool is_recurrent = spec.layers[static_cast<size_t>(first_layer + i)].is_recurrent;
    index_.push_back(is_recurrent ? n_recurrent_++ : -1);
  }
}

absl::Status RecurrentStates::Allocate(uint64_t n_states, kernels::Ops* ops) {
  if (n_recurrent_ == 0) return absl::OkStatus();
  SC_RETURN_IF_ERROR(ops->Synchronize());
  memory_ = {};
  n_states_ = 0;
  const uint64_t bytes = n_states * static_cast<uint64_t>(n_recurrent_) *
                         static_cast<uint64_t>(n_elements()) * sizeof(float);
  SC_RETURN_IF_ERROR(CheckRoom(*ops, "recurrent states", bytes, "lower --max-sequences"));
  SC_ASSIGN_OR_RETURN(memory_, ops->Allocate(bytes));
  n_states_ = n_states;
  return absl::OkStatus();
}

float* RecurrentStates::layer(int32_t i) const {
  const int32_t index = index_[static_cast<size_t>(i)];
  SC_CHECK(index >= 0 && n_states_ > 0);
  return state(static_cast<size_t>(index), 0);
}

std::vector<KvPart> RecurrentStates::parts() const {
  std::vector<KvPart> parts;
  for (size_t i = 0; i < index_.size(); ++i) {
    if (index_[i] < 0) continue;
    parts.push_back({.layer = first_layer_ + static_cast<int32_t>(i),
                     .bytes = static_cast<uint64_t>(n_elements()) * sizeof(float)});
  }
  return parts;
}

float* RecurrentStates::state(size_t part, uint64_t number) const {
  SC_CHECK(number < n_states_);
  return memory_.As<float>() + (part * n_states_ + number) * static_cast<uint64_t>(n_elements());
}

void RecurrentStates::Copy(std::span<const kernels::StateCopy> copies, kernels::Ops* ops) const {
  if (copies.empty()) return;
  for (size_t i = 0; i < index_.size(); ++i) {
    if (index_[i] < 0) continue;
    ops->CopyStates(
        {.states = layer(static_cast<int32_t>(i)), .n_elements = n_elements(), .copies = copies});
  }
}

}  // namespace stagecoach::worker
