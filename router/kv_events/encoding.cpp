#include "router/kv_events/encoding.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/kv_block.h"

namespace stagecoach::router {
namespace {

// With keys in the order in which they are added.
using Json = nlohmann::ordered_json;

// The blocks that a step reads without copying them from elsewhere. Indexers know this tier by this
// name on every device.
constexpr char kMedium[] = "GPU";

Json AsMap(const KvBlocksStored& stored) {
  return {{"type", "BlockStored"},
          {"block_hashes", stored.hashes},
          {"parent_block_hash", stored.parent ? Json(*stored.parent) : Json()},
          {"token_ids", stored.tokens},
          {"block_size", kKvBlockTokens},
          {"lora_id", nullptr},
          {"medium", kMedium},
          {"lora_name", nullptr}};
}

Json AsMap(const KvBlocksRemoved& removed) {
  return {{"type", "BlockRemoved"}, {"block_hashes", removed.hashes}, {"medium", kMedium}};
}

Json AsMap(const KvCacheCleared&) { return {{"type", "AllBlocksCleared"}}; }

}  // namespace

std::string EncodeKvEvents(const KvEventBatch& batch) {
  Json events = Json::array();
  for (const KvEvent& event : batch.events) {
    events.push_back(std::visit([](const auto& one) { return AsMap(one); }, event));
  }
  std::string payload;
  Json::to_msgpack(Json::array({static_cast<double>(batch.unix_ns) / 1e9, std::move(events),
                                batch.rank ? Json(*batch.rank) : Json()}),
                   payload);
  return payload;
}

}  // namespace stagecoach::router
