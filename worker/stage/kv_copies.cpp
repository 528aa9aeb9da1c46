#include "worker/stage/kv_copies.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace stagecoach::worker {

absl::Status KvCopies::Begin(const StepMetaView& meta, KvAfterStep* after) {
  FinishBeside();
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
  const size_t n = after->saved.size();
  if (n == 0) return;
  for (const KvSaveRecord& record : meta.saves.first(n)) {
    KvBlockName& name = after->names.emplace_back();
    std::copy(std::begin(record.key), std::end(record.key), name.key.begin());
    std::copy(std::begin(record.tokens), std::end(record.tokens), name.tokens.begin());
    name.owner = record.owner;
  }
  const KvPool& pool = exchange_->pool();
  for (size_t part = 0; part < pool.parts().size(); ++part) {
    const auto group = static_cast<size_t>(pool.parts()[part].kv_group);
    copies_.clear();
    for (size_t i = 0; i < n; ++i) {
      copies_.push_back(
          {.block = meta.save_blocks[i * meta.n_groups + group], .place = after->saved[i].index()});
    }
    model_->ExportKv(part, copies_, pool.at(part), pool.place_bytes());
  }
}

absl::StatusOr<std::vector<uint32_t>> KvCopies::PlacesOf(const StepMetaView& meta) const {
  std::vector<uint32_t> places;
  std::shared_ptr<const KvExchange::Places> fetched;
  for (size_t i = 0; i < meta.restores.size(); ++i) {
    const uint64_t fetch = meta.restores[i].fetch;
    const uint32_t index = meta.restores[i].index;
    if (i == 0 || fetch != meta.restores[i - 1].fetch) fetched = exchange_->Fetched(fetch);
    if (fetched == nullptr || index >= fetched->size()) {
      return absl::FailedPreconditionError(absl::StrCat("step ", meta.step, " restores block ",
                                                        index, " of fetch ", fetch,
                                                        ", which this stage does not hold"));
    }
    places.push_back((*fetched)[index].index());
  }
  return places;
}

absl::Status KvCopies::Restore(const StepMetaView& meta) {
  if (meta.restores.empty()) return absl::OkStatus();
  SC_ASSIGN_OR_RETURN(const std::vector<uint32_t> places, PlacesOf(meta));
  KvStaging* const staging = exchange_->staging();
  std::vector<KvRestored> now;
  std::vector<uint32_t> places_beside;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto ids = meta.restore_blocks.subspan(i * meta.n_groups, meta.n_groups);
    const bool beside = staging != nullptr && meta.restores[i].beside != 0;
    KvRestored& restored = (beside ? beside_ : now).emplace_back();
    restored.blocks.assign(ids.begin(), ids.end());
    restored.place = places[i];
    if (!beside) continue;
    restored.place = static_cast<uint32_t>(places_beside.size());
    places_beside.push_back(places[i]);
  }
  const KvPool& pool = exchange_->pool();
  Import(now, [&pool](size_t part) { return pool.at(part); });
  if (!places_beside.empty()) staging->Begin(places_beside);
  return absl::OkStatus();
}

template <typename At>
void KvCopies::Import(std::span<const KvRestored> blocks, const At& at) {
  const KvPool& pool = exchange_->pool();
  for (size_t part = 0; part < pool.parts().size(); ++part) {
    const auto group = static_cast<size_t>(pool.parts()[part].kv_group);
    copies_.clear();
    for (const KvRestored& restored : blocks) {
      const uint32_t block = restored.blocks[group];
      if (block != kNoKvBlock) copies_.push_back({.block = block, .place = restored.place});
    }
    if (!copies_.empty()) model_->ImportKv(part, copies_, at(part), pool.place_bytes());
  }
}

void KvCopies::FinishBeside() {
  if (beside_.empty()) return;
  KvStaging* const staging = exchange_->staging();
  staging->Join();
  Import(beside_, [staging](size_t part) { return staging->at(part); });
  beside_.clear();
}

void KvCopies::Finish(KvAfterStep after) {
  if (!after.saved.empty()) exchange_->Save(std::move(after.saved), std::move(after.names));
  for (const uint64_t id : after.forgotten_fetches) exchange_->Forget(id);
}

}  // namespace stagecoach::worker
