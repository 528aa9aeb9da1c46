#include "worker/kv_exchange/kv_tier.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "common/status.h"
#include "worker/kv_store/kv_entry.h"

namespace stagecoach::worker {
namespace {

constexpr auto kSaveTime = std::chrono::seconds(5);   // limit of one call
constexpr auto kFlushTime = std::chrono::seconds(5);  // at the end of the process
// A tier that is too slow to be worth it is measured again after this time.
constexpr auto kRetryTime = std::chrono::seconds(10);

std::string_view AsText(std::span<const unsigned char> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

KvSaveTask::KvSaveTask(KvPool::Places held, std::vector<KvBlockName> their_names,
                       std::atomic<uint32_t>* n_held)
    : places(std::move(held)), names(std::move(their_names)), n_held_(n_held) {}

absl::StatusOr<std::unique_ptr<KvTier>> KvTier::Open(KvPool* pool,
                                                     std::shared_ptr<KvStoreCounters> counters,
                                                     const Opener& open, size_t n_fetchers) {
  std::unique_ptr<KvTier> tier(new KvTier(pool, std::move(counters)));
  const auto guarded = [&]() -> absl::StatusOr<std::unique_ptr<KvStore>> {
    SC_ASSIGN_OR_RETURN(std::shared_ptr<KvStore> store, open());
    return std::make_unique<GuardedKvStore>(std::move(store), tier->counters_);
  };
  SC_ASSIGN_OR_RETURN(tier->save_store_, guarded());
  for (size_t i = 0; i < n_fetchers; ++i) {
    SC_ASSIGN_OR_RETURN(tier->fetch_stores_.emplace_back(), guarded());
  }
  tier->saver_ = std::thread([tier = tier.get()] {
    pthread_setname_np(pthread_self(), "kv save");
    tier->SaveLoop();
  });
  return tier;
}

KvTier::~KvTier() {
  save_until_ = Clock::now() + kFlushTime;
  saves_.Close(absl::CancelledError("the tier of KV blocks has ended"),
               ClosableQueue<std::shared_ptr<const KvSaveTask>>::Rest::kKeep);
  if (saver_.joinable()) saver_.join();
}

void KvTier::Save(std::shared_ptr<const KvSaveTask> task) {
  saves_.Push(std::move(task)).IgnoreError();
}

void KvTier::SaveLoop() {
  for (;;) {
    const absl::StatusOr<std::shared_ptr<const KvSaveTask>> task = saves_.Pop();
    if (!task.ok()) return;
    SaveBlocks(**task);
  }
}

void KvTier::SaveBlocks(const KvSaveTask& task) {
  const std::vector<KvPart>& parts = pool_.parts();
  const auto n = static_cast<uint32_t>(task.names.size());
  const auto blocks_per_call =
      static_cast<uint32_t>(std::max<uint64_t>(1, kCallBytes / pool_.place_bytes()));
  for (uint32_t first = 0; first < n; first += blocks_per_call) {
    const uint32_t n_now = std::min(blocks_per_call, n - first);
    const Clock::time_point deadline = std::min(Clock::now() + kSaveTime, save_until_.load());
    std::vector<std::string> entries;
    std::vector<KvValue> values;
    entries.reserve(n_now * parts.size());  // the values refer to them
    for (uint32_t b = first; b < first + n_now; ++b) {
      for (size_t p = 0; p < parts.size(); ++p) {
        const KvKey key{.block = task.names[b].key, .layer = static_cast<uint32_t>(parts[p].layer)};
        entries.push_back(
            EncodeKvEntry(key, task.names[b].tokens, AsText(pool_.bytes(task.places[b], p))));
        values.push_back({.key = key, .bytes = entries.back(), .owner = task.names[b].owner});
      }
    }
    const absl::Status put = Clock::now() < deadline ? save_store_->Put(values, deadline)
                                                     : absl::DeadlineExceededError("");
    (put.ok() ? n_saved_ : n_dropped_) += n_now;
  }
}

void KvTier::Read(size_t fetcher, std::span<const KvBlockName> names, Clock::time_point deadline,
                  KvPool::Places& places) {
  KvPool::Places taken = pool_.Take(static_cast<uint32_t>(names.size()));
  names = names.first(taken.size());
  if (names.empty()) return;
  const std::vector<KvPart>& parts = pool_.parts();
  std::vector<KvKey> keys;
  for (const KvBlockName& name : names) {
    for (const KvPart& part : parts) {
      keys.push_back({.block = name.key, .layer = static_cast<uint32_t>(part.layer)});
    }
  }
  const Clock::time_point began = Clock::now();
  tried_at_ = began;
  const auto entries = fetch_stores_[fetcher]->Get(keys, deadline);
  if (!entries.ok()) return;
  uint32_t n_complete = 0;
  while (n_complete < names.size()) {
    const size_t first = n_complete * parts.size();
    if (!TakeEntries(std::span(keys).subspan(first, parts.size()),
                     std::span(*entries).subspan(first, parts.size()), names[n_complete],
                     taken[n_complete])) {
      break;
    }
    pool_.Keep(taken[n_complete], names[n_complete]);
    places.Add(taken.TakeOut(n_complete));
    ++n_complete;
  }
  n_fetched_ += n_complete;
  const std::chrono::duration<double> took = Clock::now() - began;
  if (n_complete > 0) read_times_.Observe(n_complete, took.count());
}

bool KvTier::TakeEntries(std::span<const KvKey> keys,
                         std::span<const std::optional<std::string>> entries,
                         const KvBlockName& name, const KvPool::Place& place) {
  for (size_t p = 0; p < keys.size(); ++p) {
    const std::optional<std::string>& entry = entries[p];
    if (!entry) return false;
    const absl::StatusOr<std::string_view> payload = DecodeKvEntry(*entry, keys[p], name.tokens);
    const std::span<unsigned char> to = pool_.bytes(place, p);
    if (!payload.ok() || payload->size() != to.size()) {
      ++counters_->n_corrupt;
      return false;
    }
    std::memcpy(to.data(), payload->data(), to.size());
  }
  return true;
}

bool KvTier::IsFaster(uint32_t n_blocks, double recompute_s) {
  // A few calls of growing sizes show what larger ones take.
  if (recompute_s == 0 || read_times_.SecondsFor(n_blocks, /*fixed=*/true) < recompute_s) {
    return true;
  }
  return Clock::now() >= tried_at_.load() + kRetryTime;
}

}  // namespace stagecoach::worker
