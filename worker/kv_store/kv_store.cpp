#include "worker/kv_store/kv_store.h"

#include "common/redis/redis_url.h"
#include "worker/kv_store/dir_kv_store.h"
#include "worker/kv_store/redis_kv_store.h"

namespace stagecoach::worker {
namespace {

constexpr std::string_view kDir = "dir:";

}  // namespace

absl::StatusOr<std::unique_ptr<KvStore>> OpenKvStore(std::string_view url, size_t max_value_bytes) {
  if (IsRedisUrl(url)) return RedisKvStore::Open(url, max_value_bytes);
  if (url.starts_with(kDir) && url.size() > kDir.size()) {
    return std::make_unique<DirKvStore>(std::string(url.substr(kDir.size())), max_value_bytes);
  }
  return absl::InvalidArgumentError(
      "a store for KV blocks is redis://..., rediss://... or dir:PATH");
}

}  // namespace stagecoach::worker
