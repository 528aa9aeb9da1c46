#include "worker/kv_exchange/kv_tier.h"

#include <pthread.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstring>
#include <latch>
#include <optional>
#include <utility>

#include "common/status.h"
#include "worker/kv_store/kv_entry.h"

namespace stagecoach::worker {
namespace {

constexpr auto kSaveTime = std::chrono::seconds(5);   // limit of one call
constexpr auto kFlushTime = std::chrono::seconds(4);  // at the end of the process, which has 8 s
// A tier must be so many times as fast as computing. What computing takes is an average over all
// positions, and a block at the beginning of a prompt takes less.
constexpr double kLeastGain = 1.5;
// A tier that is too slow to be worth it is measured again after this time.
constexpr auto kRetryTime = std::chrono::seconds(10);

std::string_view AsText(std::span<const unsigned char> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

KvSaving::KvSaving(KvPool::Places places, std::atomic<uint32_t>* n_held)
    : places_(std::move(places)), n_held_(n_held) {
  *n_held_ += static_cast<uint32_t>(places_.size());
}

KvSaving& KvSaving::operator=(KvSaving&& other) noexcept {
  if (this == &other) return *this;
  Release();
  places_ = std::move(other.places_);
  n_held_ = std::exchange(other.n_held_, nullptr);
  return *this;
}

void KvSaving::Release() {
  if (n_held_ != nullptr) *n_held_ -= static_cast<uint32_t>(places_.size());
  n_held_ = nullptr;
}

absl::StatusOr<std::unique_ptr<KvTier>> KvTier::Open(KvPool* pool, const Source& source,
                                                     size_t n_fetchers) {
  // The saver and the fetchers each do one part themselves.
  const size_t n_helpers = (1 + n_fetchers) * (kParts - 1);
  std::unique_ptr<KvTier> tier(new KvTier(pool, &source.guard->counters(), n_helpers));
  SC_RETURN_IF_ERROR(OpenStores(source, tier->save_stores_));
  for (size_t i = 0; i < n_fetchers; ++i) {
    SC_RETURN_IF_ERROR(OpenStores(source, tier->fetch_stores_.emplace_back()));
  }
  tier->saver_ = std::thread([tier = tier.get()] {
    pthread_setname_np(pthread_self(), "kv save");
    tier->SaveLoop();
  });
  return tier;
}

absl::Status KvTier::OpenStores(const Source& source, Stores& stores) {
  for (std::unique_ptr<KvStore>& store : stores) {
    SC_ASSIGN_OR_RETURN(std::shared_ptr<KvStore> opened, source.open());
    store = std::make_unique<GuardedKvStore>(std::move(opened), source.guard);
  }
  return absl::OkStatus();
}

void KvTier::InParts(size_t n_parts, absl::FunctionRef<void(size_t part)> call) {
  std::latch done(static_cast<std::ptrdiff_t>(n_parts) - 1);
  for (size_t part = 1; part < n_parts; ++part) {
    boost::asio::post(helpers_, [&call, &done, part] {
      call(part);
      done.count_down();
    });
  }
  call(0);
  done.wait();
}

KvTier::~KvTier() {
  Close();
  if (saver_.joinable()) saver_.join();
}

void KvTier::Close() {
  Clock::time_point open = Clock::time_point::max();
  save_until_.compare_exchange_strong(open, Clock::now() + kFlushTime);
  saves_.Close(absl::CancelledError("the tier of KV blocks has ended"),
               ClosableQueue<std::shared_ptr<const KvSaveTask>>::Rest::kKeep);
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
  const auto n = static_cast<uint32_t>(task.names.size());
  const auto blocks_per_call =
      static_cast<uint32_t>(std::max<uint64_t>(1, kCallBytes / pool_.place_bytes()));
  const uint32_t n_calls = (n + blocks_per_call - 1) / blocks_per_call;
  std::atomic<uint32_t> next_call{0};
  const auto save = [&](size_t part) {
    for (uint32_t i = next_call++; i < n_calls; i = next_call++) {
      const uint32_t first = i * blocks_per_call;
      SaveCall(*save_stores_[part], task, first, std::min(blocks_per_call, n - first));
    }
  };
  if (n_calls > 0) InParts(std::min<size_t>(n_calls, kParts), save);
}

void KvTier::SaveCall(KvStore& store, const KvSaveTask& task, uint32_t first, uint32_t n) {
  const std::vector<KvPart>& parts = pool_.parts();
  const Clock::time_point deadline = std::min(Clock::now() + kSaveTime, save_until_.load());
  std::vector<std::string> entries;
  std::vector<KvValue> values;
  entries.reserve(n * parts.size());  // the values refer to them
  for (uint32_t b = first; b < first + n; ++b) {
    for (size_t p = 0; p < parts.size(); ++p) {
      const KvKey key{.block = task.names[b].key, .layer = static_cast<uint32_t>(parts[p].layer)};
      entries.push_back(
          EncodeKvEntry(key, task.names[b].tokens, AsText(pool_.bytes(task.places[b], p))));
      values.push_back({.key = key, .bytes = entries.back(), .owner = task.names[b].owner});
    }
  }
  const absl::Status put =
      Clock::now() < deadline ? store.Put(values, deadline) : absl::DeadlineExceededError("");
  (put.ok() ? n_saved_ : n_dropped_) += n;
}

void KvTier::Read(size_t fetcher, std::span<const KvBlockName> names, Clock::time_point deadline,
                  KvPool::Places& places) {
  KvPool::Places taken = pool_.Take(static_cast<uint32_t>(names.size()));
  names = names.first(taken.size());
  if (names.empty()) return;
  const Clock::time_point began = Clock::now();
  tried_at_ = began;
  const size_t n_each = (names.size() + kParts - 1) / kParts;
  std::array<uint32_t, kParts> n_read{};
  const auto read = [&](size_t part) {
    const size_t first = part * n_each;
    const size_t n = std::min(n_each, names.size() - first);
    n_read[part] =
        ReadCall(*fetch_stores_[fetcher][part], names.subspan(first, n), taken, first, deadline);
  };
  InParts((names.size() + n_each - 1) / n_each, read);
  uint32_t n_complete = 0;
  for (const uint32_t n : n_read) {
    n_complete += n;
    if (n < n_each) break;
  }
  for (uint32_t i = 0; i < n_complete; ++i) {
    pool_.Keep(taken[i], names[i]);
    places.Add(taken.TakeOut(i));
  }
  n_fetched_ += n_complete;
  const std::chrono::duration<double> took = Clock::now() - began;
  if (n_complete > 0) read_times_.Observe(n_complete, took.count());
}

uint32_t KvTier::ReadCall(KvStore& store, std::span<const KvBlockName> names,
                          const KvPool::Places& places, size_t first_place,
                          Clock::time_point deadline) {
  const std::vector<KvPart>& parts = pool_.parts();
  std::vector<KvKey> keys;
  for (const KvBlockName& name : names) {
    for (const KvPart& part : parts) {
      keys.push_back({.block = name.key, .layer = static_cast<uint32_t>(part.layer)});
    }
  }
  const auto entries = store.Get(keys, deadline);
  if (!entries.ok()) return 0;
  for (uint32_t i = 0; i < names.size(); ++i) {
    const size_t first = i * parts.size();
    if (!TakeEntries(std::span(keys).subspan(first, parts.size()),
                     std::span(*entries).subspan(first, parts.size()), names[i],
                     places[first_place + i])) {
      return i;
    }
  }
  return static_cast<uint32_t>(names.size());
}

uint32_t KvTier::FindLast(size_t fetcher, std::span<const KvBlockName> names,
                          Clock::time_point deadline) {
  const auto layer = static_cast<uint32_t>(pool_.parts().front().layer);
  std::vector<KvKey> keys;
  keys.reserve(names.size());
  for (const KvBlockName& name : names) keys.push_back({.block = name.key, .layer = layer});
  const absl::StatusOr<std::vector<bool>> found =
      fetch_stores_[fetcher].front()->Has(keys, deadline);
  if (!found.ok()) return 0;
  auto last = static_cast<uint32_t>(found->size());
  while (last > 0 && !(*found)[last - 1]) --last;
  return last;
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
      ++counters_.n_corrupt;
      return false;
    }
    std::memcpy(to.data(), payload->data(), to.size());
  }
  return true;
}

bool KvTier::IsFaster(uint32_t n_blocks, double recompute_s) {
  // A few calls of growing sizes show what larger ones take.
  if (recompute_s == 0 ||
      kLeastGain * read_times_.SecondsFor(n_blocks, /*fixed=*/true) < recompute_s) {
    return true;
  }
  return Clock::now() >= tried_at_.load() + kRetryTime;
}

}  // namespace stagecoach::worker
