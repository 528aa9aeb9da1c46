#include "worker/kv_exchange/kv_exchange.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/size.h"
#include "common/status.h"
#include "worker/kv_store/kv_entry.h"

namespace stagecoach::worker {
namespace {

using Clock = KvStore::Clock;

// Limits of one call of the store, and of a fetch. What a slow store costs a request is at most
// kFetchTime; recomputing has then begun late.
constexpr auto kSaveTime = std::chrono::seconds(5);
constexpr auto kFetchTime = std::chrono::seconds(2);
constexpr auto kFlushTime = std::chrono::seconds(5);  // at the end of the process
// A fetch asks for few blocks first: often the store has none of them.
constexpr uint32_t kFirstBlocks = 4;
constexpr uint64_t kCallBytes = 16 << 20;

std::string_view AsText(std::span<const unsigned char> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Absent: not as the protocol has it.
std::optional<std::vector<KvBlockName>> NamesOf(const v1::KvFetch& fetch) {
  if (fetch.tokens_size() != fetch.keys_size() * kKvBlockTokens) return std::nullopt;
  std::vector<KvBlockName> names(static_cast<size_t>(fetch.keys_size()));
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& key = fetch.keys(static_cast<int>(i));
    if (key.size() != names[i].key.size()) return std::nullopt;
    std::memcpy(names[i].key.data(), key.data(), key.size());
    std::copy_n(fetch.tokens().begin() + static_cast<int>(i) * kKvBlockTokens, kKvBlockTokens,
                names[i].tokens.begin());
  }
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvExchange>> KvExchange::Start(const Config& config,
                                                              std::vector<KvPart> parts,
                                                              kernels::Ops* ops) {
  const uint64_t block_bytes = KvBlockBytes(parts);
  const auto too_small = [&](const char* flag, uint64_t bytes, const char* least) {
    return absl::InvalidArgumentError(fmt::format("{} of {} is less than {} of this stage, {} each",
                                                  flag, FormatBytes(bytes), least,
                                                  FormatBytes(block_bytes)));
  };
  const uint64_t half = config.memory_bytes / 2 / block_bytes * block_bytes;
  if (half == 0) return too_small("--kv-store-memory", config.memory_bytes, "two KV blocks");
  if (config.host_bytes > 0 && config.host_bytes < block_bytes) {
    return too_small("--host-kv", config.host_bytes, "a KV block");
  }
  SC_ASSIGN_OR_RETURN(kernels::Buffer saves, ops->AllocateHost(half));
  SC_ASSIGN_OR_RETURN(kernels::Buffer fetches, ops->AllocateHost(half));
  std::unique_ptr<KvExchange> exchange(
      new KvExchange(config, std::move(parts), std::move(saves), std::move(fetches)));
  if (!config.store.empty()) SC_RETURN_IF_ERROR(exchange->OpenStores(config.store));
  if (exchange->host_) {
    spdlog::info("{} of host memory keep KV blocks that the device has no room for",
                 FormatBytes(config.host_bytes));
  }
  exchange->StartThreads();
  return exchange;
}

KvExchange::KvExchange(const Config& config, std::vector<KvPart> parts, kernels::Buffer saves,
                       kernels::Buffer fetches)
    : parts_(std::move(parts)),
      save_memory_(std::move(saves), KvBlockBytes(parts_)),
      fetch_memory_(std::move(fetches), KvBlockBytes(parts_)) {
  if (config.host_bytes > 0) host_.emplace(config.host_bytes, &parts_);
}

absl::Status KvExchange::OpenStores(const std::string& url) {
  uint64_t most = 0;
  for (const KvPart& part : parts_) most = std::max(most, part.bytes);
  const auto open = [&]() -> absl::StatusOr<std::unique_ptr<KvStore>> {
    SC_ASSIGN_OR_RETURN(auto store, OpenKvStore(url, kKvEntryHeaderBytes + most));
    return std::make_unique<GuardedKvStore>(std::move(store), counters_);
  };
  SC_ASSIGN_OR_RETURN(save_store_, open());
  for (auto& store : fetch_stores_) {
    SC_ASSIGN_OR_RETURN(store, open());
  }
  spdlog::info("KV blocks are shared through {}", save_store_->name());
  return absl::OkStatus();
}

void KvExchange::StartThreads() {
  threads_.emplace_back([this] {
    pthread_setname_np(pthread_self(), "kv save");
    SaveLoop();
  });
  for (const auto& store : fetch_stores_) {
    threads_.emplace_back([this, store = store.get()] {
      pthread_setname_np(pthread_self(), "kv fetch");
      FetchLoop(store);
    });
  }
}

KvExchange::~KvExchange() {
  EndEpoch();
  save_until_ = Clock::now() + kFlushTime;
  const absl::Status end = absl::CancelledError("the exchange of KV blocks has ended");
  saves_.Close(end, ClosableQueue<SaveTask>::Rest::kKeep);
  wanted_.Close(end);
  for (std::thread& thread : threads_) thread.join();
}

KvBlocks KvExchange::TakeForSave(uint32_t n) {
  KvBlocks blocks(save_memory_.TakeUpTo(n), &parts_);
  n_dropped_ += n - blocks.n_blocks();
  return blocks;
}

void KvExchange::Save(KvBlocks blocks, std::vector<KvBlockName> names) {
  SC_CHECK(blocks.n_blocks() == names.size());
  saves_.Push({std::move(blocks), std::move(names)}).IgnoreError();
}

void KvExchange::SaveLoop() {
  for (;;) {
    const absl::StatusOr<SaveTask> task = saves_.Pop();
    if (!task.ok()) return;
    SaveBlocks(*task);
  }
}

void KvExchange::SaveBlocks(const SaveTask& task) {
  for (auto b = static_cast<uint32_t>(task.names.size()); host_ && b > 0; --b) {
    host_->Put(task.names[b - 1], task.blocks, b - 1);
  }
  if (save_store_ != nullptr) SaveToStore(task);
}

void KvExchange::SaveToStore(const SaveTask& task) {
  const auto n = static_cast<uint32_t>(task.names.size());
  const auto blocks_per_call =
      static_cast<uint32_t>(std::max<uint64_t>(1, kCallBytes / KvBlockBytes(parts_)));
  for (uint32_t first = 0; first < n; first += blocks_per_call) {
    const uint32_t n_now = std::min(blocks_per_call, n - first);
    const Clock::time_point deadline = std::min(Clock::now() + kSaveTime, save_until_.load());
    std::vector<std::string> entries;
    std::vector<KvValue> values;
    entries.reserve(n_now * parts_.size());  // the values refer to them
    for (uint32_t b = first; b < first + n_now; ++b) {
      for (size_t p = 0; p < parts_.size(); ++p) {
        const KvKey key{.block = task.names[b].key,
                        .layer = static_cast<uint32_t>(parts_[p].layer)};
        entries.push_back(
            EncodeKvEntry(key, task.names[b].tokens, AsText(task.blocks.bytes(p, b))));
        values.push_back({.key = key, .bytes = entries.back()});
      }
    }
    const absl::Status put = Clock::now() < deadline ? save_store_->Put(values, deadline)
                                                     : absl::DeadlineExceededError("");
    (put.ok() ? n_saved_ : n_dropped_) += n_now;
  }
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

void KvExchange::FetchLoop(KvStore* store) {
  for (;;) {
    const absl::StatusOr<FetchTask> task = wanted_.Pop();
    if (!task.ok()) return;
    KvBlocks blocks;
    uint32_t n_complete = 0;
    const std::optional<std::vector<KvBlockName>> names = NamesOf(task->fetch);
    if (names && !names->empty()) {
      const auto n_wanted = static_cast<uint32_t>(names->size());
      blocks = KvBlocks(fetch_memory_.TakeUpTo(n_wanted), &parts_);
      if (blocks.n_blocks() > 0) {
        n_complete = ReadBlocks(store, std::span(*names).first(blocks.n_blocks()), blocks);
      }
      n_fetched_ += n_complete;
      n_missed_ += n_wanted - n_complete;
    }
    Answer(*task, std::move(blocks), n_complete);
  }
}

std::vector<KvKey> KvExchange::KeysOf(std::span<const KvBlockName> names) const {
  std::vector<KvKey> keys;
  for (const KvBlockName& name : names) {
    for (const KvPart& part : parts_) {
      keys.push_back({.block = name.key, .layer = static_cast<uint32_t>(part.layer)});
    }
  }
  return keys;
}

uint32_t KvExchange::ReadBlocks(KvStore* store, std::span<const KvBlockName> names,
                                const KvBlocks& blocks) {
  uint32_t n_done = 0;
  while (host_ && n_done < names.size() && host_->Get(names[n_done], blocks, n_done)) ++n_done;
  n_from_host_ += n_done;
  const uint32_t n_here = n_done;
  if (store != nullptr) n_done = ReadFromStore(*store, names, blocks, n_done);
  for (uint32_t b = n_done; host_ && b > 0; --b) {
    if (b <= n_here) {
      host_->Touch(names[b - 1]);
    } else {
      host_->Put(names[b - 1], blocks, b - 1);
    }
  }
  return n_done;
}

uint32_t KvExchange::ReadFromStore(KvStore& store, std::span<const KvBlockName> names,
                                   const KvBlocks& blocks, uint32_t n_done) {
  const Clock::time_point deadline = Clock::now() + kFetchTime;
  const auto most =
      static_cast<uint32_t>(std::max<uint64_t>(kFirstBlocks, kCallBytes / KvBlockBytes(parts_)));
  for (uint32_t n_now = kFirstBlocks; n_done < names.size(); n_now = std::min(2 * n_now, most)) {
    const auto now = names.subspan(n_done, std::min<size_t>(n_now, names.size() - n_done));
    const std::vector<KvKey> keys = KeysOf(now);
    const auto entries = store.Get(keys, deadline);
    if (!entries.ok()) return n_done;
    for (size_t i = 0; i < now.size(); ++i, ++n_done) {
      const size_t first = i * parts_.size();
      if (!TakeEntries(std::span(keys).subspan(first, parts_.size()),
                       std::span(*entries).subspan(first, parts_.size()), now[i], blocks, n_done)) {
        return n_done;
      }
    }
  }
  return n_done;
}

bool KvExchange::TakeEntries(std::span<const KvKey> keys,
                             std::span<const std::optional<std::string>> entries,
                             const KvBlockName& name, const KvBlocks& blocks, uint32_t block) {
  for (size_t p = 0; p < parts_.size(); ++p) {
    if (!entries[p]) return false;
    const absl::StatusOr<std::string_view> payload =
        DecodeKvEntry(*entries[p], keys[p], name.tokens);
    const std::span<unsigned char> to = blocks.bytes(p, block);
    if (!payload.ok() || payload->size() != to.size()) {
      ++counters_->n_corrupt;
      return false;
    }
    std::memcpy(to.data(), payload->data(), to.size());
  }
  return true;
}

void KvExchange::Answer(const FetchTask& task, KvBlocks blocks, uint32_t n_complete) {
  v1::KvFetched fetched;
  fetched.set_id(task.fetch.id());
  fetched.set_n_blocks(n_complete);
  const MutexLock lock(mutex_);
  if (task.epoch != epoch_ || on_fetched_ == nullptr) return;
  if (n_complete > 0) {
    fetched_[task.fetch.id()] = std::make_shared<const FetchedBlocks>(
        FetchedBlocks{.blocks = std::move(blocks), .n_complete = n_complete});
  }
  // Under the lock, so that no call comes after EndEpoch.
  on_fetched_(std::move(fetched));
}

std::shared_ptr<const FetchedBlocks> KvExchange::Fetched(uint64_t id) const {
  const MutexLock lock(mutex_);
  const auto found = fetched_.find(id);
  return found == fetched_.end() ? nullptr : found->second;
}

void KvExchange::Forget(uint64_t id) {
  const MutexLock lock(mutex_);
  fetched_.erase(id);
}

v1::KvStoreStats KvExchange::Stats() const {
  v1::KvStoreStats stats;
  stats.set_saved_blocks(n_saved_);
  stats.set_dropped_blocks(n_dropped_);
  stats.set_fetched_blocks(n_fetched_);
  stats.set_missed_blocks(n_missed_);
  stats.set_from_host_blocks(n_from_host_);
  if (host_) stats.set_host_blocks(host_->n_blocks());
  stats.set_corrupt_values(counters_->n_corrupt);
  stats.set_errors(counters_->n_errors);
  stats.set_waiting_blocks(save_memory_.n_total() - save_memory_.n_free());
  return stats;
}

}  // namespace stagecoach::worker
