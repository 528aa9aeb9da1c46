#include "cli/kv/kv_verify.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "cli/kv/testing/toy_store.h"
#include "worker/kv_store/kv_entry.h"

namespace stagecoach::cli::kv {
namespace {

worker::KvKey KeyOf(uint8_t block) { return {.block = {block}, .layer = 7}; }

std::string EntryOf(const worker::KvKey& key) {
  const std::array<int32_t, kKvBlockTokens> tokens{};
  return worker::EncodeKvEntry(key, tokens, "payload");
}

// The store has good values of blocks 1 to 3, then a cut one, a changed one, one of another key and
// one of another version.
ToyStore SomeDamaged() {
  ToyStore store;
  for (const uint8_t block : {1, 2, 3}) store.Add(KeyOf(block), EntryOf(KeyOf(block)));
  store.Add(KeyOf(4), EntryOf(KeyOf(4)).substr(0, 50));
  std::string changed = EntryOf(KeyOf(5));
  changed.back() = 'D';
  store.Add(KeyOf(5), changed);
  store.Add(KeyOf(6), EntryOf(KeyOf(1)));
  std::string other_version = EntryOf(KeyOf(7));
  other_version[4] = 9;
  store.Add(KeyOf(7), other_version);
  return store;
}

TEST_CASE("each value is good, damaged or foreign") {
  ToyStore store = SomeDamaged();
  uint64_t n_last = 0;
  const auto verified = Verify(store, false, [&](uint64_t n_read) {
    CHECK(n_read > n_last);
    n_last = n_read;
  });
  REQUIRE(verified.ok());
  CHECK(n_last == 7);
  CHECK(verified->n_read() == 7);
  CHECK(verified->n_good == 3);
  CHECK(verified->n_damaged == 3);
  CHECK(verified->n_foreign == 1);
  CHECK(verified->n_deleted == 0);
  REQUIRE(verified->examples.size() == 3);
  CHECK(verified->examples[0].key == KeyOf(4));
  CHECK(verified->examples[2].what == "the entry of another key");
  CHECK(store.values.size() == 7);
}

TEST_CASE("only damaged values are deleted") {
  ToyStore store = SomeDamaged();
  const auto verified = Verify(store, true, [](uint64_t) {});
  REQUIRE(verified.ok());
  CHECK(verified->n_damaged == 3);
  CHECK(verified->n_deleted == 3);
  CHECK(store.values.size() == 4);
  CHECK(Verify(store, true, [](uint64_t) {})->n_damaged == 0);
}

TEST_CASE("a value that would need too much memory is damaged, and is not read") {
  ToyStore store;
  store.Add(KeyOf(1), EntryOf(KeyOf(1)));
  store.values[0].stored.bytes = uint64_t{1} << 40;
  CHECK(Verify(store, false, [](uint64_t) {})->n_damaged == 1);
}

TEST_CASE("of many damaged values, the first ones are told") {
  ToyStore store;
  for (uint8_t block = 0; block < 30; ++block) store.Add(KeyOf(block), "x");
  const auto verified = Verify(store, false, [](uint64_t) {});
  REQUIRE(verified.ok());
  CHECK(verified->n_damaged == 30);
  CHECK(verified->examples.size() == kMostExamples);
}

}  // namespace
}  // namespace stagecoach::cli::kv
