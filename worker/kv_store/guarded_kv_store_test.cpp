#include "worker/kv_store/guarded_kv_store.h"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>
#include <utility>

namespace stagecoach::worker {
namespace {

constexpr KvStore::Clock::time_point kAnyTime{};
const std::vector<KvKey> kKeys = {{.block = {1}, .layer = 1}, {.block = {1}, .layer = 2}};
const std::vector<KvValue> kValues = {{kKeys[0], "12345"}};

// Keeps values by layer, and answers with the errors that the test sets.
class ToyStore final : public KvStore {
 public:
  std::string name() const override { return "toy"; }
  absl::StatusOr<std::vector<std::optional<std::string>>> Get(std::span<const KvKey> keys,
                                                              Clock::time_point) override {
    n_gets += 1;
    if (!get_status.ok()) return get_status;
    std::vector<std::optional<std::string>> found;
    for (const KvKey& key : keys) {
      const auto value = values.find(key.layer);
      found.push_back(value == values.end() ? std::nullopt : std::optional(value->second));
    }
    return found;
  }
  absl::StatusOr<std::vector<bool>> Has(std::span<const KvKey> keys, Clock::time_point) override {
    n_gets += 1;
    if (!get_status.ok()) return get_status;
    std::vector<bool> found;
    for (const KvKey& key : keys) found.push_back(values.contains(key.layer));
    return found;
  }
  absl::Status Put(std::span<const KvValue> put, Clock::time_point) override {
    n_puts += 1;
    if (!put_status.ok()) return put_status;
    for (const KvValue& value : put) values[value.key.layer] = value.bytes;
    return absl::OkStatus();
  }

  std::map<uint32_t, std::string> values;
  absl::Status get_status, put_status;
  int n_gets = 0, n_puts = 0;
};

struct Guarded {
  explicit Guarded(std::chrono::milliseconds wait)
      : guard(std::make_shared<KvStoreGuard>(
            counters,
            CircuitBreaker::Options{.n_failures = 3, .first_wait = wait, .longest_wait = wait})) {}

  absl::Status Get() { return store.Get(kKeys, kAnyTime).status(); }
  absl::Status Put() { return store.Put(kValues, kAnyTime); }

  const std::shared_ptr<ToyStore> toy = std::make_shared<ToyStore>();
  const std::shared_ptr<KvStoreCounters> counters = std::make_shared<KvStoreCounters>();
  const std::shared_ptr<KvStoreGuard> guard;
  GuardedKvStore store{toy, guard};
};

TEST_CASE("values and bytes are counted") {
  Guarded guarded(std::chrono::hours(1));
  CHECK(guarded.store.name() == "toy");
  REQUIRE(guarded.Put().ok());
  CHECK(guarded.store.Has(kKeys, kAnyTime).value() == std::vector<bool>{true, false});
  const auto found = guarded.store.Get(kKeys, kAnyTime);
  REQUIRE(found.ok());
  CHECK(*found == std::vector<std::optional<std::string>>{"12345", std::nullopt});
  CHECK(guarded.counters->n_hits == 1);
  CHECK(guarded.counters->n_misses == 1);
  CHECK(guarded.counters->read_bytes == 5);
  CHECK(guarded.counters->n_written == 1);
  CHECK(guarded.counters->written_bytes == 5);
  CHECK(guarded.counters->n_errors == 0);
}

TEST_CASE("a store that fails is left alone") {
  Guarded guarded(std::chrono::hours(1));
  guarded.toy->get_status = absl::PermissionDeniedError("no");
  for (int i = 0; i < 3; ++i) CHECK(guarded.Get() == guarded.toy->get_status);
  guarded.toy->get_status = absl::OkStatus();
  for (int i = 0; i < 4; ++i) CHECK(guarded.Get().code() == absl::StatusCode::kUnavailable);
  CHECK(guarded.toy->n_gets == 3);
  CHECK(guarded.counters->n_errors == 3);
  CHECK(guarded.counters->n_refused == 4);
  CHECK(guarded.counters->n_hits + guarded.counters->n_misses == 0);
}

TEST_CASE("one thread's failures keep the others' calls away, too") {
  Guarded guarded(std::chrono::hours(1));
  GuardedKvStore other(guarded.toy, guarded.guard);
  guarded.toy->get_status = absl::UnavailableError("away");
  CHECK(guarded.Get() == guarded.toy->get_status);
  CHECK(other.Has(kKeys, kAnyTime).status() == guarded.toy->get_status);
  CHECK(guarded.Get() == guarded.toy->get_status);
  CHECK_FALSE(other.Get(kKeys, kAnyTime).ok());
  CHECK(guarded.toy->n_gets == 3);
}

TEST_CASE("a full store is still read") {
  Guarded guarded(std::chrono::hours(1));
  guarded.toy->put_status = absl::ResourceExhaustedError("full");
  for (int i = 0; i < 3; ++i) CHECK(guarded.Put() == guarded.toy->put_status);
  CHECK(guarded.Put().code() == absl::StatusCode::kUnavailable);
  CHECK(guarded.toy->n_puts == 3);
  CHECK(guarded.Get().ok());
}

TEST_CASE("a trial that succeeds ends the refusals") {
  Guarded guarded(std::chrono::hours(0));
  guarded.toy->get_status = absl::UnavailableError("away");
  for (int i = 0; i < 5; ++i) CHECK(guarded.Get() == guarded.toy->get_status);
  guarded.toy->get_status = absl::OkStatus();
  CHECK(guarded.Get().ok());
  CHECK(guarded.counters->n_errors == 5);
  CHECK(guarded.counters->n_refused == 0);
}

}  // namespace
}  // namespace stagecoach::worker
