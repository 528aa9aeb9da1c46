#include "worker/kv_exchange/tiered_pool.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

// A tier is asked for few values first: often it has none of them.
constexpr uint32_t kFirstValues = KvTier::kParts;

// A tier during one fetch.
struct Reading {
  KvTier* tier;
  uint32_t n_next = kFirstValues;  // values of the next call
};

}  // namespace

absl::StatusOr<std::unique_ptr<TieredPool>> TieredPool::Open(kernels::Buffer memory,
                                                             std::vector<KvPart> parts,
                                                             const Below& below,
                                                             size_t n_fetchers) {
  std::unique_ptr<TieredPool> tiered(new TieredPool(std::move(memory), std::move(parts)));
  KvPool* const pool = &tiered->pool_;
  if (below.disk.open) {
    SC_ASSIGN_OR_RETURN(tiered->disk_, KvTier::Open(pool, below.disk, n_fetchers));
  }
  if (below.store.open) {
    SC_ASSIGN_OR_RETURN(tiered->store_, KvTier::Open(pool, below.store, n_fetchers));
  }
  return tiered;
}

KvSaving TieredPool::TakeForSave(uint32_t n) {
  // Values on their way to disk and store may hold half of the memory.
  const uint32_t n_saving = n_saving_;
  const uint32_t most = disk_ || store_ ? std::max(1u, pool_.n_total() / 2) : pool_.n_total();
  KvPool::Places places = pool_.Take(std::min(n, most - std::min(most, n_saving)));
  n_without_place_ += n - static_cast<uint32_t>(places.size());
  return {std::move(places), &n_saving_};
}

void TieredPool::Save(KvSaving saving, std::vector<KvBlockName> names) {
  SC_CHECK(saving.size() == names.size());
  for (size_t i = 0; i < saving.size(); ++i) pool_.Keep(saving[i], names[i]);
  const auto task = std::make_shared<const KvSaveTask>(std::move(saving), std::move(names));
  if (disk_) disk_->Save(task);
  if (store_) store_->Save(task);
}

void TieredPool::Close() {
  if (disk_) disk_->Close();
  if (store_) store_->Close();
}

KvPool::Places TieredPool::Collect(size_t fetcher, std::span<const KvBlockName> names,
                                   Clock::time_point deadline, ComputeTime compute_time,
                                   Counts& counts) {
  const auto most = static_cast<uint32_t>(
      std::max<uint64_t>(kFirstValues, KvTier::kParts * KvTier::kCallBytes / pool_.place_bytes()));
  // A tier that lacks a value is asked no more: it has hardly any of the later ones.
  std::vector<Reading> readings;
  for (KvTier* const tier : {disk_.get(), store_.get()}) {
    if (tier != nullptr) readings.push_back({tier});
  }
  KvPool::Places places;
  while (places.size() < names.size()) {
    if (KvPool::Place place = pool_.Find(names[places.size()]); place.valid()) {
      places.Add(std::move(place));
      ++counts.n_host;
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
    if (reading.tier->IsFaster(n_to_read, compute_time(n_to_read))) {
      reading.tier->Read(fetcher, rest.first(n_now), deadline, places);
    }
    const auto n_read = static_cast<uint32_t>(places.size() - n_before);
    if (reading.tier == disk_.get()) counts.n_disk += n_read;
    reading.n_next = std::min(2 * reading.n_next, most);
    if (n_read < n_now) readings.erase(readings.begin());
  }
  return places;
}

uint32_t TieredPool::FindLast(size_t fetcher, std::span<const KvBlockName> names,
                              Clock::time_point deadline, ComputeTime compute_time) {
  auto last = static_cast<uint32_t>(names.size());
  while (last > 0 && !pool_.Has(names[last - 1])) --last;
  for (KvTier* const tier : {disk_.get(), store_.get()}) {
    if (tier == nullptr || last == names.size() || !tier->IsFaster(1, compute_time(1))) continue;
    last += tier->FindLast(fetcher, names.subspan(last), deadline);
  }
  return last;
}

uint64_t TieredPool::n_dropped() const {
  uint64_t n = n_without_place_;
  for (const KvTier* tier : {disk_.get(), store_.get()})
    n += tier == nullptr ? 0 : tier->n_dropped();
  return n;
}

}  // namespace stagecoach::worker
