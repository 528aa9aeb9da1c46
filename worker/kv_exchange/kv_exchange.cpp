#include "worker/kv_exchange/kv_exchange.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/size.h"
#include "common/status.h"
#include "worker/kv_store/disk_kv_store.h"
#include "worker/kv_store/disk_tier.h"
#include "worker/kv_store/kv_entry.h"

namespace stagecoach::worker {
namespace {

using Clock = KvStore::Clock;

// What slow tiers cost a request at most; recomputing has then begun late.
constexpr auto kFetchTime = std::chrono::seconds(2);
// A tier is asked for few blocks first: often it has none of them.
constexpr uint32_t kFirstBlocks = KvTier::kParts;
// Decode steps tell nothing about prompts.
constexpr uint64_t kLeastRows = 64;

// Absent: not as the protocol has it.
std::optional<std::vector<KvBlockName>> NamesOf(const v1::KvFetch& fetch) {
  if (fetch.tokens_size() != fetch.keys_size() * kKvBlockTokens) return std::nullopt;
  std::vector<KvBlockName> names(static_cast<size_t>(fetch.keys_size()));
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& key = fetch.keys(static_cast<int>(i));
    if (key.size() != names[i].key.size()) return std::nullopt;
    std::memcpy(names[i].key.data(), key.data(), key.size());
    std::copy_n(fetch.tokens().begin() + static_cast<std::ptrdiff_t>(i) * kKvBlockTokens,
                kKvBlockTokens, names[i].tokens.begin());
  }
  return names;
}

// A tier during one fetch.
struct Reading {
  KvTier* tier;
  uint32_t n_next = kFirstBlocks;  // blocks of the next call
};

}  // namespace

absl::StatusOr<std::unique_ptr<KvExchange>> KvExchange::Start(const Config& config,
                                                              std::vector<KvPart> parts,
                                                              kernels::Ops* ops) {
  const uint64_t place_bytes = KvBlockBytes(parts);
  SC_CHECK(place_bytes > 0);
  if (config.host_bytes < place_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("--host-kv of {} is less than a KV block of this stage, {}",
                    FormatBytes(config.host_bytes), FormatBytes(place_bytes)));
  }
  SC_ASSIGN_OR_RETURN(kernels::Buffer memory,
                      ops->AllocateHost(config.host_bytes / place_bytes * place_bytes));
  std::unique_ptr<KvExchange> exchange(new KvExchange(std::move(memory), std::move(parts)));
  if (ops->runs_ahead()) {
    SC_ASSIGN_OR_RETURN(exchange->staging_, KvStaging::Make(&exchange->pool_, ops));
  }
  SC_RETURN_IF_ERROR(exchange->OpenTiers(config));
  spdlog::info("{} of host memory keep KV blocks that the device has no room for{}{}{}{}",
               FormatBytes(config.host_bytes), exchange->disk_ ? "; below it " : "",
               exchange->disk_ ? exchange->disk_->name() : "",
               exchange->store_ ? "; shared through " : "",
               exchange->store_ ? exchange->store_->name() : "");
  exchange->StartThreads();
  return exchange;
}

KvExchange::KvExchange(kernels::Buffer memory, std::vector<KvPart> parts)
    : pool_(std::move(memory), std::move(parts)) {}

absl::Status KvExchange::OpenTiers(const Config& config) {
  uint64_t most = 0;
  for (const KvPart& part : pool_.parts()) most = std::max(most, part.bytes);
  const size_t max_value_bytes = kKvEntryHeaderBytes + most;
  if (!config.disk.empty()) {
    SC_ASSIGN_OR_RETURN(DiskTier disk, ParseDiskTier(config.disk));
    if (disk.bytes == 0) {
      SC_ASSIGN_OR_RETURN(disk.bytes, DefaultDiskBytes(disk.path));
    }
    SC_ASSIGN_OR_RETURN(
        std::shared_ptr<KvStore> store,
        DiskKvStore::Open({.path = disk.path,
                           .layers = {.first = static_cast<uint32_t>(pool_.parts().front().layer),
                                      .last = static_cast<uint32_t>(pool_.parts().back().layer)},
                           .max_bytes = std::max<uint64_t>(1, disk.bytes / config.n_local),
                           .max_value_bytes = max_value_bytes}));
    SC_ASSIGN_OR_RETURN(disk_, KvTier::Open(&pool_, counters_, [&] { return store; }, kFetchers));
  }
  if (!config.store.empty()) {
    SC_ASSIGN_OR_RETURN(store_, KvTier::Open(
                                    &pool_, counters_,
                                    [&]() -> absl::StatusOr<std::shared_ptr<KvStore>> {
                                      return OpenKvStore(config.store, max_value_bytes);
                                    },
                                    kFetchers));
  }
  return absl::OkStatus();
}

void KvExchange::StartThreads() {
  for (size_t i = 0; i < kFetchers; ++i) {
    fetchers_.emplace_back([this, i] {
      pthread_setname_np(pthread_self(), "kv fetch");
      FetchLoop(i);
    });
  }
}

KvExchange::~KvExchange() {
  EndEpoch();
  wanted_.Close(absl::CancelledError("the exchange of KV blocks has ended"));
  for (std::thread& fetcher : fetchers_) fetcher.join();
}

KvSaving KvExchange::TakeForSave(uint32_t n) {
  // Blocks on their way to disk and store may hold half of the memory.
  const uint32_t n_saving = n_saving_;
  const uint32_t most = disk_ || store_ ? std::max(1u, pool_.n_total() / 2) : pool_.n_total();
  Places places = pool_.Take(std::min(n, most - std::min(most, n_saving)));
  n_dropped_ += n - static_cast<uint32_t>(places.size());
  return {std::move(places), &n_saving_};
}

void KvExchange::Save(KvSaving saving, std::vector<KvBlockName> names) {
  SC_CHECK(saving.size() == names.size());
  for (size_t i = 0; i < saving.size(); ++i) pool_.Keep(saving[i], names[i]);
  const auto task = std::make_shared<const KvSaveTask>(std::move(saving), std::move(names));
  if (disk_) disk_->Save(task);
  if (store_) store_->Save(task);
}

void KvExchange::BeginEpoch(std::function<void(v1::KvFetched)> on_fetched) {
  const MutexLock lock(mutex_);
  ++epoch_;
  on_fetched_ = std::move(on_fetched);
}

void KvExchange::EndEpoch() {
  const MutexLock lock(mutex_);
  ++epoch_;
  on_fetched_ = nullptr;
  fetched_.clear();
}

void KvExchange::Fetch(v1::KvFetch fetch) {
  FetchTask task{.fetch = std::move(fetch)};
  {
    const MutexLock lock(mutex_);
    task.epoch = epoch_;
  }
  wanted_.Push(std::move(task)).IgnoreError();
}

void KvExchange::FetchLoop(size_t fetcher) {
  for (;;) {
    const absl::StatusOr<FetchTask> task = wanted_.Pop();
    if (!task.ok()) return;
    Places places;
    v1::KvFetched fetched;
    fetched.set_id(task->fetch.id());
    if (const auto names = NamesOf(task->fetch)) {
      places = Collect(fetcher, *names, fetched);
      n_fetched_ += places.size();
      n_missed_ += names->size() - places.size();
    }
    fetched.set_n_blocks(static_cast<uint32_t>(places.size()));
    Answer(*task, std::move(places), std::move(fetched));
  }
}

KvExchange::Places KvExchange::Collect(size_t fetcher, std::span<const KvBlockName> names,
                                       v1::KvFetched& fetched) {
  const Clock::time_point deadline = Clock::now() + kFetchTime;
  const auto most = static_cast<uint32_t>(
      std::max<uint64_t>(kFirstBlocks, KvTier::kParts * KvTier::kCallBytes / pool_.place_bytes()));
  // A tier that lacks a block is asked no more: it has hardly any of the later ones.
  std::vector<Reading> readings;
  for (KvTier* const tier : {disk_.get(), store_.get()}) {
    if (tier != nullptr) readings.push_back({tier});
  }
  uint32_t n_from_disk = 0;
  Places places;
  while (places.size() < names.size()) {
    if (KvPool::Place place = pool_.Find(names[places.size()]); place.valid()) {
      places.Add(std::move(place));
      fetched.set_n_host_blocks(fetched.n_host_blocks() + 1);
      continue;
    }
    if (readings.empty()) break;
    Reading& reading = readings.front();
    const std::span<const KvBlockName> rest = names.subspan(places.size());
    const auto is_here = [this](const KvBlockName& name) { return pool_.Has(name); };
    const auto n_wanted =
        static_cast<uint32_t>(std::find_if(rest.begin(), rest.end(), is_here) - rest.begin());
    const uint32_t n_now = std::clamp(n_wanted, 1u, reading.n_next);
    const size_t n_before = places.size();
    const uint32_t n_to_read = std::max(1u, n_wanted);
    if (reading.tier->IsFaster(n_to_read, compute_times_.SecondsFor(n_to_read, /*fixed=*/false))) {
      reading.tier->Read(fetcher, rest.first(n_now), deadline, places);
    }
    const auto n_read = static_cast<uint32_t>(places.size() - n_before);
    if (reading.tier == disk_.get()) n_from_disk += n_read;
    reading.n_next = std::min(2 * reading.n_next, most);
    if (n_read < n_now) readings.erase(readings.begin());
  }
  n_from_host_ += fetched.n_host_blocks();
  fetched.set_n_disk_blocks(n_from_disk);
  return places;
}

void KvExchange::Answer(const FetchTask& task, Places places, v1::KvFetched fetched) {
  const MutexLock lock(mutex_);
  if (task.epoch != epoch_ || on_fetched_ == nullptr) return;
  if (!places.empty()) {
    fetched_[task.fetch.id()] = std::make_shared<const Places>(std::move(places));
  }
  // Under the lock, so that no call comes after EndEpoch.
  on_fetched_(std::move(fetched));
}

std::shared_ptr<const KvExchange::Places> KvExchange::Fetched(uint64_t id) const {
  const MutexLock lock(mutex_);
  const auto found = fetched_.find(id);
  return found == fetched_.end() ? nullptr : found->second;
}

void KvExchange::Forget(uint64_t id) {
  const MutexLock lock(mutex_);
  fetched_.erase(id);
}

void KvExchange::Computed(uint64_t n_rows, double seconds) {
  if (n_rows < kLeastRows) return;
  compute_times_.Observe(static_cast<double>(n_rows) / kKvBlockTokens, seconds);
}

v1::KvStoreStats KvExchange::Stats() const {
  v1::KvStoreStats stats;
  uint64_t n_dropped = n_dropped_;
  for (const KvTier* tier : {disk_.get(), store_.get()}) {
    if (tier != nullptr) n_dropped += tier->n_dropped();
  }
  if (store_) stats.set_saved_blocks(store_->n_saved());
  if (disk_) {
    stats.set_saved_to_disk_blocks(disk_->n_saved());
    stats.set_from_disk_blocks(disk_->n_fetched());
  }
  stats.set_dropped_blocks(n_dropped);
  stats.set_fetched_blocks(n_fetched_);
  stats.set_missed_blocks(n_missed_);
  stats.set_from_host_blocks(n_from_host_);
  stats.set_host_blocks(pool_.n_kept());
  stats.set_corrupt_values(counters_->n_corrupt);
  stats.set_errors(counters_->n_errors);
  stats.set_waiting_blocks(n_saving_);
  return stats;
}

}  // namespace stagecoach::worker
