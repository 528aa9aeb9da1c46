#include "worker/stage/kv_copies.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace stagecoach::worker {

absl::Status KvCopies::Begin(const StepMetaView& meta, KvAfterStep* after) {
  if (meta.saves.empty() && meta.restores.empty() && meta.forgotten_fetches.empty()) {
    return absl::OkStatus();
  }
  if (exchange_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", meta.step, " copies KV blocks, but this stage has no store"));
  }
  if (!meta.saves.empty()) Save(meta, after);
  after->forgotten_fetches.assign(meta.forgotten_fetches.begin(), meta.forgotten_fetches.end());
  return Restore(meta);
}

void KvCopies::Save(const StepMetaView& meta, KvAfterStep* after) {
  after->saved = exchange_->TakeForSave(static_cast<uint32_t>(meta.saves.size()));
  const uint32_t n = after->saved.n_blocks();
  if (n == 0) return;
  for (const KvSaveRecord& record : meta.saves.first(n)) {
    KvBlockName& name = after->names.emplace_back();
    std::copy(std::begin(record.key), std::end(record.key), name.key.begin());
    std::copy(std::begin(record.tokens), std::end(record.tokens), name.tokens.begin());
  }
  for (size_t part = 0; part < exchange_->parts().size(); ++part) {
    const auto group = static_cast<size_t>(exchange_->parts()[part].kv_group);
    ids_.clear();
    for (uint32_t i = 0; i < n; ++i) ids_.push_back(meta.save_blocks[i * meta.n_groups + group]);
    model_->ExportKv(part, ids_, after->saved.at(part, 0));
  }
}

absl::Status KvCopies::Restore(const StepMetaView& meta) {
  // One copy fills blocks that are consecutive in the fetch.
  for (size_t begin = 0, end = 0; begin < meta.restores.size(); begin = end) {
    const KvRestoreRecord& first = meta.restores[begin];
    for (end = begin + 1; end < meta.restores.size(); ++end) {
      const KvRestoreRecord& next = meta.restores[end];
      if (next.fetch != first.fetch || next.index != first.index + (end - begin)) break;
    }
    const std::shared_ptr<const FetchedBlocks> fetched = exchange_->Fetched(first.fetch);
    if (fetched == nullptr || first.index + (end - begin) > fetched->n_complete) {
      return absl::FailedPreconditionError(absl::StrCat("step ", meta.step,
                                                        " restores blocks of fetch ", first.fetch,
                                                        ", which this stage does not hold"));
    }
    for (size_t part = 0; part < exchange_->parts().size(); ++part) {
      const auto group = static_cast<size_t>(exchange_->parts()[part].kv_group);
      // Blocks behind a window are at the front.
      size_t at = begin;
      while (at < end && meta.restore_blocks[at * meta.n_groups + group] == kNoKvBlock) ++at;
      ids_.clear();
      for (size_t i = at; i < end; ++i)
        ids_.push_back(meta.restore_blocks[i * meta.n_groups + group]);
      if (ids_.empty()) continue;
      if (std::find(ids_.begin(), ids_.end(), kNoKvBlock) != ids_.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("step ", meta.step, " restores a block of no id behind one that has one"));
      }
      model_->ImportKv(part, ids_, fetched->blocks.at(part, meta.restores[at].index));
    }
  }
  return absl::OkStatus();
}

void KvCopies::Finish(KvAfterStep after) {
  if (after.saved.n_blocks() > 0) exchange_->Save(std::move(after.saved), std::move(after.names));
  for (const uint64_t id : after.forgotten_fetches) exchange_->Forget(id);
}

}  // namespace stagecoach::worker
