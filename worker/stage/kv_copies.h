// A step's copies of KV blocks between the device and the exchange's host memory.
//
// Begin queues them on the device before the step's rows: first saves, which see what the steps
// before have written, then restores, which the rows read. The host memory is handed on when the
// device has finished the step.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/kv_exchange/kv_exchange.h"
#include "worker/model/stage_model.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::worker {

// What is to be done when the device has finished a step.
struct KvAfterStep {
  KvExchange::Places saved;
  std::vector<KvBlockName> names;
  std::vector<uint64_t> forgotten_fetches;  // the device may read their memory until then
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
  absl::Status Restore(const StepMetaView& meta);
  void Save(const StepMetaView& meta, KvAfterStep* after);

  StageModel* const model_;
  KvExchange* const exchange_;
  std::vector<kernels::KvBlockCopy> copies_;  // of one part
};

}  // namespace stagecoach::worker
