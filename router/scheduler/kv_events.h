// What the prefix cache of a scheduler gains and loses, told to whoever routes requests by it
// (--kv-events).
//
// A block is named by a hash, the last 8 bytes of its key (block_key.h), read as a big-endian
// number with the highest bit set. So no hash is 0, which indexers take for "no parent", and every
// encoder writes all 8 bytes, as some decoders demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "router/scheduler/block_key.h"

namespace stagecoach::router {

uint64_t EventHash(const BlockKey& key);

// Blocks that follow one another.
struct KvBlocksStored {
  std::vector<uint64_t> hashes;
  std::optional<uint64_t> parent;  // of the first; none: it is the first of a sequence
  std::vector<int32_t> tokens;     // kKvBlockTokens per block
  bool operator==(const KvBlocksStored&) const = default;
};

struct KvBlocksRemoved {
  std::vector<uint64_t> hashes;
  bool operator==(const KvBlocksRemoved&) const = default;
};

struct KvCacheCleared {
  bool operator==(const KvCacheCleared&) const = default;
};

using KvEvent = std::variant<KvBlocksStored, KvBlocksRemoved, KvCacheCleared>;
// In the order in which they happened.
using KvEvents = std::vector<KvEvent>;

// The number of blocks that the events name.
size_t NBlocksOf(const KvEvents& events);

struct KvBlockStored {
  uint64_t hash = 0;
  std::optional<uint64_t> parent;
  std::span<const int32_t> tokens;  // kKvBlockTokens
};

// Adds the block to the last event if it follows on its blocks, or else as a new event.
void AddStored(const KvBlockStored& block, KvEvents& events);

// Called on the scheduler's thread; must not block.
class KvEventSink {
 public:
  virtual ~KvEventSink() = default;
  // False: there is no room, and the events are lost.
  virtual bool Publish(KvEvents events) = 0;
  // Publish would find room for some events.
  virtual bool HasRoom() = 0;
};

struct KvEventOptions {
  KvEventSink* sink = nullptr;  // outlives its user; null: nobody wants to know
  // As SchedulerConfig::kv_scope. REQUIRES: not empty if there is a sink.
  std::string scope;
};

// Collects events until they are published. Not thread-safe.
class KvEventLog {
 public:
  explicit KvEventLog(KvEventSink* sink) : sink_(*sink) {}

  void Stored(const KvBlockStored& block);
  void Removed(uint64_t hash);
  void Cleared();

  // Gives all events to the sink. After a loss of events, what the listeners know is wrong. So
  // nothing is collected until the sink has room; then Flush publishes that the cache is cleared,
  // and `all` of it. `all` returns events.
  void Flush(absl::FunctionRef<KvEvents()> all);

 private:
  KvEventSink& sink_;
  KvEvents events_;
  bool has_lost_ = false;
};

}  // namespace stagecoach::router
