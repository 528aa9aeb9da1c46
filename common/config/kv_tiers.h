#pragma once

#include "stagecoach/v1/load.pb.h"

namespace stagecoach {

// Whether stages keep KV blocks that the device has no room for.
inline bool HasKvTiers(const v1::LoadConfig& config) {
  return config.host_kv_bytes() > 0 || !config.disk_kv().empty() || !config.kv_store().empty();
}

}  // namespace stagecoach
