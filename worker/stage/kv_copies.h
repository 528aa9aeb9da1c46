// A step's copies of KV blocks between the device and the exchange's host memory.
//
// Begin queues them on the device before the step's rows: first saves, which see what the steps
// before have written, then restores, which the rows read. Restores beside the rows go to memory of
// their own while the rows are computed, and into the cache at the beginning of the next step. The
// host memory is handed on when the device has finished the step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/kv_exchange/kv_exchange.h"
#include "worker/model/stage_model.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::worker {

// What is to be done when the device has finished a step.
struct KvAfterStep {
  KvSaving saved;
  std::vector<KvBlockName> names;
  std::vector<uint64_t> forgotten_fetches;  // the device may read their memory until then
};

// A place with a block, and the ids that it gets.
struct KvRestored {
  uint32_t place;
  std::vector<uint32_t> blocks;  // by KV group; kNoKvBlock: none
};

// Compute thread, except Finish.
class KvCopies {
 public:
  // Both outlive this. exchange: null if there is no store.
  KvCopies(StageModel* model, KvExchange* exchange) : model_(model), exchange_(exchange) {}

  // FAILED_PRECONDITION: the step has copies and there is no store, or a block that it restores was
  // not fetched; the sequence would read garbage.
  absl::Status Begin(const StepMetaView& meta, KvAfterStep* after);
  // Any thread.
  void Finish(KvAfterStep after);

 private:
  // Places of the pool, by restore.
  absl::StatusOr<std::vector<uint32_t>> PlacesOf(const StepMetaView& meta) const;
  absl::Status Restore(const StepMetaView& meta);
  // Copies restored blocks to the parts' caches. `at` has the address of a part of place 0.
  template <typename At>
  void Import(std::span<const KvRestored> blocks, const At& at);
  // The restores beside the step before.
  void FinishBeside();
  void Save(const StepMetaView& meta, KvAfterStep* after);

  StageModel* const model_;
  KvExchange* const exchange_;
  std::vector<kernels::KvBlockCopy> copies_;  // of one part
  std::vector<KvRestored> beside_;            // by place of the staging memory
};

}  // namespace stagecoach::worker
