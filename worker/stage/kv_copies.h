// A step's copies of KV blocks, and of saved states of recurrent layers, between the device and the
// exchange's host memory.
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
  KvSaving saved_states;
  std::vector<KvBlockName> state_names;
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
  // All outlive this. exchange: null if there is no store.
  KvCopies(StageModel* model, kernels::Ops* ops, KvExchange* exchange)
      : model_(model), ops_(ops), exchange_(exchange) {}

  // FAILED_PRECONDITION: the step has copies and there is no store, or a block that it restores was
  // not fetched; the sequence would read garbage.
  absl::Status Begin(const StepMetaView& meta, KvAfterStep* after);
  // Any thread.
  void Finish(KvAfterStep after);

 private:
  // What to restore a block from.
  struct Source {
    uint32_t place = 0;        // of the pool of blocks
    uint32_t state_place = 0;  // of the pool of states, if the restore names a state
  };
  // By restore.
  absl::StatusOr<std::vector<Source>> SourcesOf(const StepMetaView& meta) const;
  absl::Status Restore(const StepMetaView& meta);
  // Copies restored blocks to the parts' caches. `at` has the address of a part of place 0.
  template <typename At>
  void Import(std::span<const KvRestored> blocks, const At& at);
  // The restores beside the step before.
  void FinishBeside();
  void Save(const StepMetaView& meta, KvAfterStep* after);
  void SaveBlocks(const StepMetaView& meta, std::span<const size_t> saves, KvAfterStep* after);
  void SaveStates(const StepMetaView& meta, std::span<const size_t> saves, KvAfterStep* after);
  // Copies states from these places to these numbers, beside what follows until JoinCopies.
  struct RestoredState {
    uint32_t place;
    uint32_t state;
  };
  void BeginStates(std::span<const RestoredState> states);

  StageModel* const model_;
  kernels::Ops* const ops_;
  KvExchange* const exchange_;
  std::vector<kernels::KvBlockCopy> copies_;  // of one part
  std::vector<KvRestored> beside_;            // by place of the staging memory
};

}  // namespace stagecoach::worker
