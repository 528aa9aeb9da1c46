// Runs the largest possible steps once before the stage serves. This shows their memory use, makes
// failures appear now instead of later, and lets a device autotune its algorithms.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "stagecoach/v1/stage.pb.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

struct ProfileOptions {
  v1::LoadConfig config;
  int32_t n_local_workers = 1;
  int32_t n_links = 0;         // NCCL communicators that are made later
  bool times_one_row = false;  // the report has one_row_ms
};

// Runs steps from max_batched_tokens rows down to one row over a small temporary KV cache; on the
// last stage with logits for as many rows as it computes per call. Then reports the memory left for
// the KV cache. A device without its own memory runs only the largest step.
// RESOURCE_EXHAUSTED if the KV memory cannot hold one block of each group; the message suggests a
// fix if one is known.
absl::StatusOr<v1::MemoryReport> ProfileMemory(StageModel& model, kernels::Ops& ops, bool is_last,
                                               const ProfileOptions& options);

// Runs the same steps without the measurements, for a stage whose report and tuning are those of
// its predecessor: a library kernel must not be loaded while a receive waits. Does nothing on a
// device without its own memory.
absl::Status WarmUp(StageModel& model, kernels::Ops& ops, bool is_last,
                    const v1::LoadConfig& config);

}  // namespace stagecoach::worker
