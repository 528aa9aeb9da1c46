#include "worker/kv_store/kv_key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stagecoach::worker {

std::string HexBlock(const KvKey& key) { return fmt::format("{:02x}", fmt::join(key.block, "")); }

}  // namespace stagecoach::worker
