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

namespace {

KvBlockName NameOf(const KvSaveRecord& record) {
  KvBlockName name{.owner = record.owner};
  std::copy(std::begin(record.key), std::end(record.key), name.key.begin());
  std::copy(std::begin(record.tokens), std::end(record.tokens), name.tokens.begin());
  return name;
}

}  // namespace

void KvCopies::Save(const StepMetaView& meta, KvAfterStep* after) {
  std::vector<size_t> blocks, states;
  for (size_t i = 0; i < meta.saves.size(); ++i) {
    (meta.saved_state(i) == kNoKvBlock ? blocks : states).push_back(i);
  }
  // A stage may have no part of a block, or of a state.
  if (!blocks.empty() && exchange_->blocks() != nullptr) SaveBlocks(meta, blocks, after);
  if (!states.empty() && exchange_->states() != nullptr) SaveStates(meta, states, after);
}

void KvCopies::SaveBlocks(const StepMetaView& meta, std::span<const size_t> saves,
                          KvAfterStep* after) {
  TieredPool& blocks = *exchange_->blocks();
  after->saved = blocks.TakeForSave(static_cast<uint32_t>(saves.size()));
  saves = saves.first(after->saved.size());
  if (saves.empty()) return;
  for (const size_t i : saves) after->names.push_back(NameOf(meta.saves[i]));
  const KvPool& pool = blocks.pool();
  for (size_t part = 0; part < pool.parts().size(); ++part) {
    const auto group = static_cast<size_t>(pool.parts()[part].kv_group);
    copies_.clear();
    for (size_t i = 0; i < saves.size(); ++i) {
      copies_.push_back(
          {.block = meta.saved_blocks(saves[i])[group], .place = after->saved[i].index()});
    }
    model_->ExportKv(part, copies_, pool.at(part), pool.place_bytes());
  }
}

void KvCopies::SaveStates(const StepMetaView& meta, std::span<const size_t> saves,
                          KvAfterStep* after) {
  TieredPool& states = *exchange_->states();
  after->saved_states = states.TakeForSave(static_cast<uint32_t>(saves.size()));
  saves = saves.first(after->saved_states.size());
  const KvPool& pool = states.pool();
  for (size_t i = 0; i < saves.size(); ++i) {
    after->state_names.push_back(OfState(NameOf(meta.saves[saves[i]])));
    const uint32_t number = meta.saved_state(saves[i]);
    for (size_t part = 0; part < pool.parts().size(); ++part) {
      const auto to = pool.bytes(after->saved_states[i], part);
      ops_->DownloadLater(model_->state(part, number), to.data(), to.size());
    }
  }
}

absl::StatusOr<std::vector<KvCopies::Source>> KvCopies::SourcesOf(const StepMetaView& meta) const {
  std::vector<Source> sources;
  std::shared_ptr<const KvExchange::FetchedKv> fetched;
  for (size_t i = 0; i < meta.restores.size(); ++i) {
    const uint64_t fetch = meta.restores[i].fetch;
    const uint32_t index = meta.restores[i].index;
    if (i == 0 || fetch != meta.restores[i - 1].fetch) fetched = exchange_->Fetched(fetch);
    if (fetched == nullptr || index >= fetched->n_blocks) {
      return absl::FailedPreconditionError(absl::StrCat("step ", meta.step, " restores block ",
                                                        index, " of fetch ", fetch,
                                                        ", which this stage does not hold"));
    }
    Source& source = sources.emplace_back();
    if (!fetched->blocks.empty()) source.place = fetched->blocks[index].index();
    if (meta.restored_state(i) == kNoKvBlock || exchange_->states() == nullptr) continue;
    if (!fetched->state.valid() || index + 1 != fetched->n_blocks) {
      return absl::FailedPreconditionError(
          absl::StrCat("step ", meta.step, " restores a state after block ", index, " of fetch ",
                       fetch, ", which this stage does not hold"));
    }
    source.state_place = fetched->state.index();
  }
  return sources;
}

absl::Status KvCopies::Restore(const StepMetaView& meta) {
  if (meta.restores.empty()) return absl::OkStatus();
  SC_ASSIGN_OR_RETURN(const std::vector<Source> sources, SourcesOf(meta));
  KvStaging* const staging = exchange_->staging();
  std::vector<KvRestored> now;
  std::vector<uint32_t> places_beside;
  std::vector<RestoredState> states_now, states_beside;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto ids = meta.restored_blocks(i);
    const bool beside = staging != nullptr && meta.restores[i].beside != 0;
    if (const uint32_t state = meta.restored_state(i);
        state != kNoKvBlock && exchange_->states() != nullptr) {
      (beside ? states_beside : states_now)
          .push_back({.place = sources[i].state_place, .state = state});
    }
    if (exchange_->blocks() == nullptr) continue;
    KvRestored& restored = (beside ? beside_ : now).emplace_back();
    restored.blocks.assign(ids.begin(), ids.end());
    restored.place = sources[i].place;
    if (!beside) continue;
    restored.place = static_cast<uint32_t>(places_beside.size());
    places_beside.push_back(sources[i].place);
  }
  if (!now.empty()) {
    const KvPool& pool = exchange_->blocks()->pool();
    Import(now, [&pool](size_t part) { return pool.at(part); });
  }
  if (!states_now.empty()) {
    BeginStates(states_now);
    ops_->JoinCopies();
  }
  // FinishBeside waits for these, too.
  BeginStates(states_beside);
  if (!places_beside.empty()) staging->Begin(places_beside);
  return absl::OkStatus();
}

void KvCopies::BeginStates(std::span<const RestoredState> states) {
  if (states.empty()) return;
  const KvPool& pool = exchange_->states()->pool();
  std::vector<kernels::HostCopy> copies;
  for (const RestoredState& restored : states) {
    for (size_t part = 0; part < pool.parts().size(); ++part) {
      copies.push_back({.host = pool.at(part) + restored.place * pool.place_bytes(),
                        .device = model_->state(part, restored.state),
                        .bytes = pool.parts()[part].bytes});
    }
  }
  ops_->CopyBeside(copies);
}

template <typename At>
void KvCopies::Import(std::span<const KvRestored> blocks, const At& at) {
  const KvPool& pool = exchange_->blocks()->pool();
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
  if (!after.saved.empty()) {
    exchange_->blocks()->Save(std::move(after.saved), std::move(after.names));
  }
  if (!after.saved_states.empty()) {
    exchange_->states()->Save(std::move(after.saved_states), std::move(after.state_names));
  }
  for (const uint64_t id : after.forgotten_fetches) exchange_->Forget(id);
}

}  // namespace stagecoach::worker
