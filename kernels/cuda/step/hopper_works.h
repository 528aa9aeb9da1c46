// Selects the sequences of a step for Hopper's dense prefill kernel (HopperPrefill) and distributes
// their work over the CTAs. Runs on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/attention/hopper_prefill.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/step_inputs.h"

namespace stagecoach::kernels::cuda {

class HopperWorks {
 public:
  struct Setup {
    int32_t tile_rows = 0;  // token rows per HopperPrefill tile; 0: the kernel is not used
    int64_t capacity = 0;   // keys that fit into the gather buffer, with all KV heads
    // The kernel for all other sequences: HopperPackedPrefill or PrefillAttention, and its packed
    // rows per tile.
    bool others_packed = false;
    int32_t other_tile_rows = 96;
  };

  // Selects multi-row sequences for which gathering the keys and whole tiles of tokens pay off, as
  // long as their keys fit into the gather buffer.
  void Choose(const Stream& stream, const StepLimits& limits, const Setup& setup,
              std::span<const StepSeq> seqs);
  bool Has(size_t seq) const { return first_keys_[seq] >= 0; }
  bool empty() const { return n_seqs_ == 0; }

  // Call after Choose. starts: [n_seqs], the first row of each sequence.
  void Plan(const Stream& stream, const StepLimits& limits, std::span<const StepSeq> seqs,
            std::span<const int32_t> starts);
  // The arrays of HopperPlan, one after another.
  const std::vector<int32_t>& arrays() const { return arrays_; }
  // The plan, if the arrays are at `arrays` in device memory.
  HopperPlan At(const Stream& stream, const int32_t* arrays) const;

  // Upper bound for the number of elements in arrays().
  static size_t MaxArrays(const Stream& stream, const StepLimits& limits, const Setup& setup);

 private:
  Setup setup_;
  std::vector<int32_t> first_keys_;  // per sequence: its first gathered key; -1: not selected
  int32_t n_seqs_ = 0, n_blocks_ = 0, n_works_ = 0, n_passes_ = 1;
  std::vector<int32_t> arrays_;
};

}  // namespace stagecoach::kernels::cuda
