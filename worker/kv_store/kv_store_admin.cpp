#include "worker/kv_store/kv_store_admin.h"

#include "common/redis/redis_url.h"
#include "worker/kv_store/dir_kv_admin.h"
#include "worker/kv_store/dir_kv_store.h"
#include "worker/kv_store/kv_store.h"
#include "worker/kv_store/redis_kv_admin.h"

namespace stagecoach::worker {

absl::StatusOr<std::unique_ptr<KvStoreAdmin>> OpenKvStoreAdmin(std::string_view url) {
  if (IsRedisUrl(url)) return RedisKvAdmin::Open(url);
  if (IsDirUrl(url)) return DirKvAdmin::Open(std::string(url.substr(kDirUrl.size())));
  return absl::InvalidArgumentError(kStoreUrls);
}

}  // namespace stagecoach::worker
