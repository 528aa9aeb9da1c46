// KV events as vLLM writes them since 0.24: MessagePack of [time, [event, ...], rank], each event a
// map with its kind under "type". llm-d-kv-cache reads this form since 0.9.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "router/scheduler/kv_events.h"

namespace stagecoach::router {

struct KvEventBatch {
  uint64_t unix_ns = 0;
  std::optional<uint32_t> rank;  // the replica, vLLM's data-parallel rank; none: all of them
  KvEvents events;
};

std::string EncodeKvEvents(const KvEventBatch& batch);

}  // namespace stagecoach::router
