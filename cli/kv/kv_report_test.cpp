#include "cli/kv/kv_report.h"

#include <catch2/catch_test_macros.hpp>

#include "cli/kv/testing/toy_store.h"
#include "common/json_text.h"

namespace stagecoach::cli::kv {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

Groups GroupsOf(ToyStore& store) {
  Groups groups;
  REQUIRE(store
              .Scan([&](std::span<const worker::StoredKv> values) {
                groups.Add(values);
                return absl::OkStatus();
              })
              .ok());
  return groups;
}

// A model of four layers with a block that lacks two of them, and another model of one layer.
ToyStore TwoModels() {
  ToyStore store;
  for (uint32_t layer = 0; layer < 4; ++layer) {
    store.Add(1, layer, 65'648, seconds(12));
    store.Add(2, layer, 65'648, hours(3));
    if (layer < 2) store.Add(3, layer, 65'648, hours(30));
  }
  store.Add(9, 0, 1'136, seconds(5));
  return store;
}

TEST_CASE("numbers and ages are written for people") {
  CHECK(Grouped(0) == "0");
  CHECK(Grouped(999) == "999");
  CHECK(Grouped(1'000) == "1,000");
  CHECK(Grouped(1'234'567) == "1,234,567");
  CHECK(CountOf(1, "value") == "1 value");
  CHECK(CountOf(2'000, "block") == "2,000 blocks");
  CHECK(AgeText(seconds(59)) == "59 s");
  CHECK(AgeText(seconds(60)) == "1 min");
  CHECK(AgeText(hours(47)) == "47 h");
  CHECK(AgeText(hours(48)) == "2 d");
}

TEST_CASE("a list has a line for each size of values") {
  ToyStore store = TwoModels();
  CHECK(ListText(store, GroupsOf(store)) ==
        "toy:place: 4 blocks, 11 values, 642.2 KiB\n"
        "\n"
        "value size  layers  blocks  whole       size  last used\n"
        "  64.1 KiB  0 to 3       3      2  641.1 KiB  12 s to 30 h ago\n"
        "   1.1 KiB       0       1      1    1.1 KiB  5 s ago\n");
  store.values.clear();
  store.kind = worker::KvStoreAdmin::Age::kSinceWritten;
  CHECK(ListText(store, GroupsOf(store)) == "toy:place: no values\n");
  store.Add(1, 3, 1'000, std::nullopt);
  store.Add(1, 9, 1'000, std::nullopt);
  CHECK(ListText(store, GroupsOf(store)) ==
        "toy:place: 1 block, 2 values, 2.0 KiB\n"
        "\n"
        "value size       layers  blocks  whole     size  written\n"
        "    1000 B  2 of 3 to 9       1      1  2.0 KiB  unknown\n");
}

TEST_CASE("a list as JSON") {
  ToyStore store = TwoModels();
  CHECK(
      JsonText(ListJson(store, GroupsOf(store))) ==
      R"({"store":"toy:place","values":11,"bytes":657616,"blocks":4,"age_since":"used","groups":[)"
      R"({"value_bytes":65648,"layers":4,"first_layer":0,"last_layer":3,"blocks":3,)"
      R"("whole_blocks":2,"values":10,"bytes":656480,"newest_s":12,"oldest_s":108000},)"
      R"({"value_bytes":1136,"layers":1,"first_layer":0,"last_layer":0,"blocks":1,)"
      R"("whole_blocks":1,"values":1,"bytes":1136,"newest_s":5,"oldest_s":5}]})");
}

TEST_CASE("what was verified, as text and as JSON") {
  const ToyStore store;
  Verified verified{
      .n_good = 39'480, .n_damaged = 2, .n_foreign = 0, .n_deleted = 2, .examples = {}};
  verified.examples.push_back({{.block = {0xab}, .layer = 7}, "truncated: 5 bytes"});
  CHECK(VerifyText(store, verified) ==
        "toy:place: 39,482 values read\n"
        "  good           39,480\n"
        "  damaged             2  2 deleted\n"
        "  foreign             0\n"
        "block ab000000000000000000000000000000, layer 7: truncated: 5 bytes\n"
        "and 1 more\n");
  CHECK(
      JsonText(VerifyJson(store, verified)) ==
      R"({"store":"toy:place","good":39480,"damaged":2,"foreign":0,"deleted":2,"examples":[)"
      R"({"block":"ab000000000000000000000000000000","layer":7,"problem":"truncated: 5 bytes"}]})");
  verified = {.n_good = 1, .n_damaged = 0, .n_foreign = 3, .n_deleted = 0, .examples = {}};
  CHECK(VerifyText(store, verified) ==
        "toy:place: 4 values read\n"
        "  good                1\n"
        "  damaged             0\n"
        "  foreign             3  of another version of stagecoach\n");
}

}  // namespace
}  // namespace stagecoach::cli::kv
