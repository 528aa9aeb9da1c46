#include "router/kv_events/encoding.h"

#include <nlohmann/json.hpp>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

using Json = nlohmann::json;

TEST_CASE("KV events are an array of a time, maps with a type, and a rank") {
  const uint64_t hash = EventHash({});
  std::vector<int32_t> tokens(32, 151'000);
  const KvEventBatch batch{
      .unix_ns = 1'700'000'000'000'000'000,
      .rank = 3,
      .events = {
          KvBlocksStored{.hashes = {hash, hash + 1}, .parent = std::nullopt, .tokens = tokens},
          KvBlocksStored{.hashes = {hash + 2}, .parent = hash + 1, .tokens = {1, 2}},
          KvBlocksRemoved{.hashes = {hash}}, KvCacheCleared{}}};
  const Json expected = {1'700'000'000.0,
                         {{{"type", "BlockStored"},
                           {"block_hashes", {hash, hash + 1}},
                           {"parent_block_hash", nullptr},
                           {"token_ids", tokens},
                           {"block_size", 16},
                           {"lora_id", nullptr},
                           {"medium", "GPU"},
                           {"lora_name", nullptr}},
                          {{"type", "BlockStored"},
                           {"block_hashes", {hash + 2}},
                           {"parent_block_hash", hash + 1},
                           {"token_ids", {1, 2}},
                           {"block_size", 16},
                           {"lora_id", nullptr},
                           {"medium", "GPU"},
                           {"lora_name", nullptr}},
                          {{"type", "BlockRemoved"}, {"block_hashes", {hash}}, {"medium", "GPU"}},
                          {{"type", "AllBlocksCleared"}}},
                         3};
  CHECK(Json::from_msgpack(EncodeKvEvents(batch)) == expected);
  CHECK(Json::from_msgpack(EncodeKvEvents({}))[2].is_null());
}

TEST_CASE("Every hash of a KV event has 8 bytes") {
  // MessagePack's code of a 64-bit number. Decoders of llm-d refuse shorter ones.
  const std::string payload =
      EncodeKvEvents({.events = {KvBlocksRemoved{.hashes = {EventHash({})}}}});
  CHECK(payload.find(std::string("\xcf\x80\0\0\0\0\0\0\0", 9)) != std::string::npos);
}

}  // namespace
}  // namespace stagecoach::router
