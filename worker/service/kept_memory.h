// A stage's weights and KV cache in memory that outlives the worker: its launcher's store holds the
// descriptors, and the next process of the stage maps what this one has filled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/fd_store/fd_store_client.h"
#include "kernels/ops.h"
#include "stagecoach/v1/kept_memory.pb.h"
#include "stagecoach/v1/stage.pb.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

// Use from one thread at a time. Without a store, or if it fails, memory ends with the process as
// it does anywhere else.
class KeptMemory {
 public:
  // Both outlive this. `store` may be null.
  KeptMemory(kernels::Ops* ops, FdStoreClient* store) : ops_(ops), store_(store) {}

  // A load begins. What the store holds for another one is freed.
  void BeginLoad(const v1::LoadRequest& request);
  // The load has failed.
  void AbandonLoad() { new_weights_.reset(); }
  // For StageModelOptions, during the load that has begun.
  LastingMemory Weights();
  // What the earlier process found out when it filled the weights that this load has mapped. Null:
  // it mapped none, or this load needs another report.
  const v1::KeptWeights* mapped_weights() const {
    return has_mapped_weights_ && has_report_ && weights_ ? &*weights_ : nullptr;
  }
  // The weights are complete: from now on the next process may map them.
  void KeepWeights(const v1::MemoryReport& report);
  // Frees the KV cache that the store holds, so that a report can count the free memory.
  void DropKv();

  // For StageModel::AllocateKv with these blocks, in a Join of this epoch.
  LastingMemory Kv(const std::vector<uint64_t>& n_blocks, uint64_t epoch);
  // The epoch in which the KV cache's memory was new. What later epochs wrote is in it.
  uint64_t kv_since() const { return kv_since_; }

  // The device has failed, so nobody may rely on what is in its memory. Any thread may call this.
  void Distrust();

 private:
  // What the store holds under this name for this load, if anything.
  template <typename Kept>
  std::optional<Kept> Find(const char* name);
  void Keep(const char* name, const std::string& description, const UniqueFd& fd);
  void Drop(const char* name);
  // Maps what the store holds under this name. Absent if it cannot; it is then dropped.
  std::optional<kernels::Buffer> Map(const char* name, size_t bytes);

  kernels::Ops* const ops_;
  FdStoreClient* const store_;
  std::string stage_;                       // identity of the load
  uint64_t kv_memory_bytes_ = 0;            // LoadConfig's
  std::optional<v1::KeptWeights> weights_;  // in the store, for this load
  std::optional<v1::KeptKv> kv_;            // the same
  bool has_mapped_weights_ = false;
  bool has_report_ = false;                           // weights_ has the report of this load
  std::optional<kernels::SharedBuffer> new_weights_;  // being filled
  uint64_t kv_since_ = 0;
};

}  // namespace stagecoach::worker
