#include "router/frontend/http/usage_json.h"

namespace stagecoach::router::http {

void AddCached(const v1::Usage& from, v1::Usage& sum) {
  sum.set_cached_tokens(sum.cached_tokens() + from.cached_tokens());
  const v1::StoredTokens& stored = from.stored_tokens();
  v1::StoredTokens& all = *sum.mutable_stored_tokens();
  all.set_host(all.host() + stored.host());
  all.set_disk(all.disk() + stored.disk());
  all.set_store(all.store() + stored.store());
}

boost::json::object CachedJson(const v1::Usage& usage) {
  boost::json::object json = {{"cached_tokens", usage.cached_tokens()}};
  const v1::StoredTokens& stored = usage.stored_tokens();
  if (stored.host() + stored.disk() + stored.store() > 0) {
    json.emplace("stored_tokens",
                 boost::json::object{
                     {"host", stored.host()}, {"disk", stored.disk()}, {"store", stored.store()}});
  }
  return json;
}

}  // namespace stagecoach::router::http
