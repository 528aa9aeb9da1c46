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
#include "worker/kv_store/disk_block.h"
#include "worker/kv_store/disk_folder.h"
#include "worker/kv_store/disk_kv_store.h"
#include "worker/kv_store/disk_tier.h"
#include "worker/kv_store/kv_entry.h"

namespace stagecoach::worker {
namespace {

using Clock = KvStore::Clock;

// What slow tiers cost a request at most; recomputing has then begun late.
constexpr auto kFetchTime = std::chrono::seconds(2);
// Decode steps tell nothing about prompts.
constexpr uint64_t kLeastRows = 64;
// Host memory has a state for so many blocks, as a device has for its prefix cache.
constexpr uint64_t kBlocksPerState = kTokensPerState / kKvBlockTokens;
// A tier may have lost a state that it said to have.
constexpr int kMostTries = 4;

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

// Bytes of the pools that share host memory.
struct Sizes {
  uint64_t block_bytes = 0, state_bytes = 0;
};

// block_bytes, state_bytes: of one each; 0: the stage has none.
Sizes Divide(uint64_t bytes, uint64_t block_bytes, uint64_t state_bytes) {
  uint64_t n_states = 0;
  if (state_bytes > 0) {
    n_states = bytes / (kBlocksPerState * block_bytes + state_bytes);
    if (n_states == 0 && bytes >= block_bytes + state_bytes) n_states = 1;
  }
  const uint64_t n_blocks = block_bytes == 0 ? 0 : (bytes - n_states * state_bytes) / block_bytes;
  return {.block_bytes = n_blocks * block_bytes, .state_bytes = n_states * state_bytes};
}

// Disk and store keep each layer of a block or state as a value. Returns the longest one's bytes.
size_t LongestValue(std::span<const KvPart> parts) {
  uint64_t most = 0;
  for (const KvPart& part : parts) most = std::max(most, part.bytes);
  return kKvEntryHeaderBytes + most;
}

// What the file of a block or state with these parts takes on disk; 0: the stage has none.
uint64_t DiskFileBytes(std::span<const KvPart> parts) {
  if (parts.empty()) return 0;
  uint64_t bytes = 0;
  for (const KvPart& part : parts) bytes += kKvEntryHeaderBytes + part.bytes;
  return DiskBytes(DiskBlockBytes(parts.size(), bytes));
}

// Blocks and states share the disk's bound. The stage has one of them, or both.
absl::StatusOr<std::shared_ptr<KvStore>> OpenDisk(const KvExchange::Config& config,
                                                  std::vector<KvPart> parts,
                                                  const std::vector<KvPart>& state_parts) {
  SC_ASSIGN_OR_RETURN(DiskTier disk, ParseDiskTier(config.disk));
  const uint64_t least = DiskFileBytes(parts) + DiskFileBytes(state_parts);
  if (disk.bytes > 0 && disk.bytes / config.n_local < least) {
    return absl::InvalidArgumentError(
        fmt::format("this worker's share of SIZE, {}, is less than a KV block{} of this stage, {}",
                    FormatBytes(disk.bytes / config.n_local),
                    state_parts.empty() ? "" : " and a recurrent state", FormatBytes(least)));
  }
  if (disk.bytes == 0) {
    SC_ASSIGN_OR_RETURN(disk.bytes, DefaultDiskBytes(disk.path));
  }
  parts.insert(parts.end(), state_parts.begin(), state_parts.end());
  const auto [first, last] = std::ranges::minmax(parts, {}, &KvPart::layer);
  return DiskKvStore::Open({.path = disk.path,
                            .layers = {.first = static_cast<uint32_t>(first.layer),
                                       .last = static_cast<uint32_t>(last.layer)},
                            .max_bytes = std::max<uint64_t>(1, disk.bytes / config.n_local),
                            .max_value_bytes = LongestValue(parts)});
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvExchange>> KvExchange::Start(const Config& config,
                                                              std::vector<KvPart> parts,
                                                              std::vector<KvPart> state_parts,
                                                              kernels::Ops* ops) {
  std::unique_ptr<KvExchange> exchange(new KvExchange());
  SC_RETURN_IF_ERROR(exchange->OpenPools(config, std::move(parts), std::move(state_parts), ops));
  if (ops->runs_ahead() && exchange->blocks_) {
    SC_ASSIGN_OR_RETURN(exchange->staging_, KvStaging::Make(&exchange->blocks_->pool(), ops));
  }
  const TieredPool* const pool =
      exchange->blocks_ ? exchange->blocks_.get() : exchange->states_.get();
  exchange->StartThreads();
  if (pool == nullptr) return exchange;
  const KvTier* const disk = pool->disk();
  const KvTier* const store = pool->store();
  spdlog::info("{} of host memory keep KV blocks{} that the device has no room for{}{}{}{}",
               FormatBytes(config.host_bytes), exchange->states_ ? " and recurrent states" : "",
               disk != nullptr ? "; below it " : "", disk != nullptr ? disk->name() : "",
               store != nullptr ? "; shared through " : "", store != nullptr ? store->name() : "");
  return exchange;
}

absl::Status KvExchange::OpenPools(const Config& config, std::vector<KvPart> parts,
                                   std::vector<KvPart> state_parts, kernels::Ops* ops) {
  const uint64_t block_bytes = KvBlockBytes(parts), state_bytes = KvBlockBytes(state_parts);
  const Sizes sizes = Divide(config.host_bytes, block_bytes, state_bytes);
  if (sizes.block_bytes < block_bytes || sizes.state_bytes < state_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("--host-kv of {} is less than a KV block{} of this stage, {}",
                    FormatBytes(config.host_bytes), state_bytes > 0 ? " and a recurrent state" : "",
                    FormatBytes(block_bytes + state_bytes)));
  }
  if (block_bytes + state_bytes == 0) return absl::OkStatus();
  // What fails for blocks fails for states, too.
  TieredPool::Below below{.disk = {.guard = std::make_shared<KvStoreGuard>(counters_)},
                          .store = {.guard = std::make_shared<KvStoreGuard>(counters_)}};
  if (!config.disk.empty()) {
    absl::StatusOr<std::shared_ptr<KvStore>> disk = OpenDisk(config, parts, state_parts);
    if (!disk.ok()) {
      return absl::Status(disk.status().code(),
                          fmt::format("--disk-kv: {}", std::string(disk.status().message())));
    }
    below.disk.open = [disk = *std::move(disk)] { return disk; };
  }
  const auto open =
      [&](uint64_t bytes,
          std::vector<KvPart> of_value) -> absl::StatusOr<std::unique_ptr<TieredPool>> {
    if (!config.store.empty()) {
      // A Redis gets fewer values at a time if they are longer.
      below.store.open = [&config, longest = LongestValue(
                                       of_value)]() -> absl::StatusOr<std::shared_ptr<KvStore>> {
        return OpenKvStore(config.store, longest);
      };
    }
    SC_ASSIGN_OR_RETURN(kernels::Buffer memory, ops->AllocateHost(bytes));
    return TieredPool::Open(std::move(memory), std::move(of_value), below, kFetchers);
  };
  if (block_bytes > 0) {
    SC_ASSIGN_OR_RETURN(blocks_, open(sizes.block_bytes, std::move(parts)));
  }
  if (state_bytes > 0) {
    SC_ASSIGN_OR_RETURN(states_, open(sizes.state_bytes, std::move(state_parts)));
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
  if (blocks_) blocks_->Close();
  if (states_) states_->Close();
  wanted_.Close(absl::CancelledError("the exchange of KV blocks has ended"));
  for (std::thread& fetcher : fetchers_) fetcher.join();
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

void KvExchange::TryStore(size_t fetcher) {
  TieredPool* const pool = blocks_ ? blocks_.get() : states_.get();
  if (pool == nullptr || pool->store() == nullptr) return;
  const absl::Status tried = pool->TryStore(fetcher, Clock::now() + kFetchTime);
  if (tried.ok()) return;
  spdlog::warn("KV store {} cannot be used now; requests are served without it: {}",
               pool->store()->name(), std::string(tried.message()));
}

void KvExchange::FetchLoop(size_t fetcher) {
  if (fetcher == 0) TryStore(fetcher);
  for (;;) {
    const absl::StatusOr<FetchTask> task = wanted_.Pop();
    if (!task.ok()) return;
    FetchedKv kv;
    v1::KvFetched fetched;
    fetched.set_id(task->fetch.id());
    if (const auto names = NamesOf(task->fetch)) {
      kv = Collect(fetcher, *names, fetched);
      n_fetched_ += kv.n_blocks;
      n_missed_ += names->size() - kv.n_blocks;
      n_fetched_states_ += kv.state.valid() ? 1 : 0;
    }
    fetched.set_n_blocks(kv.n_blocks);
    fetched.set_ends_at_state(kv.state.valid());
    Answer(*task, std::move(kv), std::move(fetched));
  }
}

KvExchange::FetchedKv KvExchange::Collect(size_t fetcher, std::span<const KvBlockName> names,
                                          v1::KvFetched& fetched) {
  const Clock::time_point deadline = Clock::now() + kFetchTime;
  TieredPool::Counts counts;
  FetchedKv kv;
  if (states_) {
    CollectToState(fetcher, names, deadline, kv, counts);
  } else {
    CollectBlocks(fetcher, names, deadline, kv, counts);
  }
  fetched.set_n_host_blocks(std::min(counts.n_host, kv.n_blocks));
  fetched.set_n_disk_blocks(std::min(counts.n_disk, kv.n_blocks - fetched.n_host_blocks()));
  n_from_host_ += fetched.n_host_blocks();
  return kv;
}

void KvExchange::CollectBlocks(size_t fetcher, std::span<const KvBlockName> names,
                               Clock::time_point deadline, FetchedKv& kv,
                               TieredPool::Counts& counts) {
  kv.n_blocks = static_cast<uint32_t>(names.size());
  if (!blocks_) return;
  const auto compute_time = [this](uint32_t n) { return SecondsToCompute(n); };
  kv.blocks = blocks_->Collect(fetcher, names, deadline, compute_time, counts);
  kv.n_blocks = static_cast<uint32_t>(kv.blocks.size());
}

void KvExchange::CollectToState(size_t fetcher, std::span<const KvBlockName> names,
                                Clock::time_point deadline, FetchedKv& kv,
                                TieredPool::Counts& counts) {
  std::vector<KvBlockName> state_names;
  state_names.reserve(names.size());
  for (const KvBlockName& name : names) state_names.push_back(OfState(name));
  const std::span<const KvBlockName> all = state_names;
  const auto find_state = [&](uint32_t n_blocks) {
    // With the state, none of the blocks is computed.
    return states_->FindLast(fetcher, all.first(n_blocks), deadline,
                             [&](uint32_t) { return SecondsToCompute(n_blocks); });
  };
  uint32_t end = find_state(static_cast<uint32_t>(names.size()));
  CollectBlocks(fetcher, names.first(end), deadline, kv, counts);
  for (int i = 0; end > 0 && i < kMostTries; ++i) {
    if (end > kv.n_blocks) end = find_state(kv.n_blocks);
    if (end == 0) break;
    TieredPool::Counts of_state;
    KvPool::Places state = states_->Collect(
        fetcher, all.subspan(end - 1, 1), deadline, [&](uint32_t) { return SecondsToCompute(end); },
        of_state);
    if (!state.empty()) {
      kv.state = state.TakeOut(0);
      kv.n_blocks = end;
      kv.blocks.Trim(end);
      return;
    }
    end = find_state(end - 1);
  }
  kv = {};
}

double KvExchange::SecondsToCompute(uint32_t n_blocks) const {
  return compute_times_.SecondsFor(n_blocks, /*fixed=*/false);
}

void KvExchange::Answer(const FetchTask& task, FetchedKv kv, v1::KvFetched fetched) {
  const MutexLock lock(mutex_);
  if (task.epoch != epoch_ || on_fetched_ == nullptr) return;
  if (kv.n_blocks > 0) {
    fetched_[task.fetch.id()] = std::make_shared<const FetchedKv>(std::move(kv));
  }
  // Under the lock, so that no call comes after EndEpoch.
  on_fetched_(std::move(fetched));
}

std::shared_ptr<const KvExchange::FetchedKv> KvExchange::Fetched(uint64_t id) const {
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
  if (blocks_) {
    if (blocks_->store() != nullptr) stats.set_saved_blocks(blocks_->store()->n_saved());
    if (const KvTier* const disk = blocks_->disk(); disk != nullptr) {
      stats.set_saved_to_disk_blocks(disk->n_saved());
      stats.set_from_disk_blocks(disk->n_fetched());
    }
    stats.set_dropped_blocks(blocks_->n_dropped());
    stats.set_host_blocks(blocks_->pool().n_kept());
    stats.set_waiting_blocks(blocks_->n_saving());
  }
  stats.set_fetched_blocks(n_fetched_);
  stats.set_missed_blocks(n_missed_);
  stats.set_from_host_blocks(n_from_host_);
  stats.set_corrupt_values(counters_->n_corrupt);
  stats.set_errors(counters_->n_errors);
  if (states_) {
    stats.set_host_states(states_->pool().n_kept());
    stats.set_fetched_states(n_fetched_states_);
    stats.set_dropped_states(states_->n_dropped());
  }
  return stats;
}

}  // namespace stagecoach::worker
