#include "worker/kv_store/kv_store.h"

#include <fmt/format.h>

#include "common/redis/redis_url.h"
#include "worker/kv_store/dir_kv_store.h"
#include "worker/kv_store/redis_kv_store.h"

namespace stagecoach::worker {
namespace {

absl::StatusOr<std::unique_ptr<KvStore>> Open(std::string_view url, size_t max_value_bytes) {
  if (IsRedisUrl(url)) return RedisKvStore::Open(url, max_value_bytes);
  if (IsDirUrl(url)) {
    return std::make_unique<DirKvStore>(std::string(url.substr(kDirUrl.size())), max_value_bytes);
  }
  return absl::InvalidArgumentError(kStoreUrls);
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvStore>> OpenKvStore(std::string_view url, size_t max_value_bytes) {
  absl::StatusOr<std::unique_ptr<KvStore>> store = Open(url, max_value_bytes);
  if (store.ok()) return store;
  // Not the URL, which may have a password.
  return absl::Status(store.status().code(),
                      fmt::format("--kv-store: {}", std::string(store.status().message())));
}

}  // namespace stagecoach::worker
