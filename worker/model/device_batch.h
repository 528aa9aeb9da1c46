// A StepBatch in device memory that was set aside at load time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "worker/model/step_batch.h"

namespace stagecoach::worker {

struct DeviceBatchLimits {
  int32_t max_tokens = 0;
  int32_t max_sequences = 0;
  int32_t max_blocks = 0;  // of one sequence
  int32_t n_groups = 0;
};

class DeviceBatch {
 public:
  static absl::StatusOr<DeviceBatch> Allocate(const DeviceBatchLimits& limits, kernels::Ops* ops);

  // Queues the copy; the batch's host memory is free to reuse on return.
  void Upload(const StepBatch& batch, kernels::Ops* ops);

  struct Group {
    int32_t* kv_slots = nullptr;      // [T]
    int32_t* block_tables = nullptr;  // [S, block_table_stride]
    int32_t block_table_stride = 0;
  };

  const int32_t* token_ids() const { return token_ids_; }          // [T]
  const int32_t* positions() const { return positions_; }          // [T]
  const int32_t* seq_starts() const { return seq_starts_; }        // [S + 1]
  const int32_t* seq_positions() const { return seq_positions_; }  // [S]
  const Group& group(int32_t i) const { return groups_[static_cast<size_t>(i)]; }
  int32_t n_tokens() const { return n_tokens_; }
  int32_t n_seqs() const { return n_seqs_; }
  uint64_t n_bytes() const { return buffer_.bytes; }

 private:
  DeviceBatchLimits limits_;
  kernels::Buffer buffer_;
  int32_t* token_ids_ = nullptr;
  int32_t* positions_ = nullptr;
  int32_t* seq_starts_ = nullptr;
  int32_t* seq_positions_ = nullptr;
  std::vector<Group> groups_;
  int32_t n_tokens_ = 0, n_seqs_ = 0;
};

}  // namespace stagecoach::worker
