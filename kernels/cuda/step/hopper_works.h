// Which of a step's sequences Hopper's dense prefill kernel (HopperPrefill) takes, and how its work
// is shared out; made on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/hopper/hopper_prefill.h"
#include "kernels/step_inputs.h"

namespace stagecoach::kernels::cuda {

class HopperWorks {
 public:
  struct Setup {
    int32_t tile_rows = 0;  // of HopperPrefill; 0: it is not used
    int64_t capacity = 0;   // keys that are gathered at once, of all KV heads
    // Who takes those left out: HopperPackedPrefill or PrefillAttention; packed rows of its tiles.
    bool others_packed = false;
    int32_t other_tile_rows = 96;
  };

  // Chooses sequences of several rows: those for which gathering and whole tiles of tokens pay, as
  // far as there is room for their keys.
  void Choose(const Stream& stream, const StepLimits& limits, const Setup& setup,
              std::span<const StepSeq> seqs);
  bool Has(size_t seq) const { return first_keys_[seq] >= 0; }
  bool empty() const { return n_seqs_ == 0; }

  // Afterwards. starts: [n_seqs]: the sequences' first rows.
  void Plan(const Stream& stream, const StepLimits& limits, std::span<const StepSeq> seqs,
            std::span<const int32_t> starts);
  // HopperPlan's, one after another.
  const std::vector<int32_t>& arrays() const { return arrays_; }
  // With the arrays in memory of the device.
  HopperPlan At(const Stream& stream, const int32_t* arrays) const;

  // The most elements that arrays() can have.
  static size_t MaxArrays(const Stream& stream, const StepLimits& limits, const Setup& setup);

 private:
  Setup setup_;
  std::vector<int32_t> first_keys_;  // by sequence: its first gathered key; -1: not taken
  int32_t n_seqs_ = 0, n_blocks_ = 0, n_works_ = 0, n_passes_ = 1;
  std::vector<int32_t> arrays_;
};

}  // namespace stagecoach::kernels::cuda
