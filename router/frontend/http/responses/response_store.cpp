#include "router/frontend/http/responses/response_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "router/text/error_code.h"

namespace stagecoach::router::http {

void ResponseStore::Put(const Caller& caller, const std::string& id,
                        const v1::ChatRequest& conversation, Clock::time_point now) {
  if (!keeps()) return;
  Response response{.id = id, .conversation = conversation.SerializeAsString(), .used_at = now};
  const size_t n_bytes = response.n_bytes();
  if (n_bytes > limits_.max_bytes) return;
  const MutexLock lock(mutex_);
  RemoveOld(now);
  Tenant& tenant = tenants_[caller.tenant];
  tenant.weight = caller.weight;
  if (const auto older = tenant.by_id.find(id); older != tenant.by_id.end()) {
    Remove(tenant, older->second);
  }
  tenant.by_use.push_front(std::move(response));
  tenant.by_id[id] = tenant.by_use.begin();
  tenant.n_bytes += n_bytes;
  n_bytes_ += n_bytes;
  MakeRoom();
}

absl::StatusOr<v1::ChatRequest> ResponseStore::Find(const Caller& caller, const std::string& id,
                                                    Clock::time_point now) {
  std::string text;
  {
    const MutexLock lock(mutex_);
    RemoveOld(now);
    const auto tenant = tenants_.find(caller.tenant);
    const auto found = tenant == tenants_.end() ? decltype(tenant->second.by_id.end()){}
                                                : tenant->second.by_id.find(id);
    if (tenant == tenants_.end() || found == tenant->second.by_id.end()) {
      return WithErrorCode(
          absl::InvalidArgumentError(fmt::format(
              "previous_response_id: the response '{}' is not kept: it was not stored, or not for "
              "so long (--response-time, --response-memory); send the whole conversation",
              id.substr(0, 80))),
          kPreviousResponseNotFound);
    }
    std::list<Response>& by_use = tenant->second.by_use;
    by_use.splice(by_use.begin(), by_use, found->second);
    found->second->used_at = now;
    text = found->second->conversation;
  }
  v1::ChatRequest conversation;
  if (!conversation.ParseFromString(text)) return absl::InternalError("a kept response is broken");
  return conversation;
}

void ResponseStore::Remove(Tenant& tenant, std::list<Response>::iterator response) {
  tenant.n_bytes -= response->n_bytes();
  n_bytes_ -= response->n_bytes();
  tenant.by_id.erase(response->id);
  tenant.by_use.erase(response);
}

void ResponseStore::RemoveOld(Clock::time_point now) {
  for (auto tenant = tenants_.begin(); tenant != tenants_.end();) {
    std::list<Response>& by_use = tenant->second.by_use;
    while (!by_use.empty() && now - by_use.back().used_at > limits_.keep) {
      Remove(tenant->second, std::prev(by_use.end()));
    }
    tenant = by_use.empty() ? tenants_.erase(tenant) : std::next(tenant);
  }
}

void ResponseStore::MakeRoom() {
  while (n_bytes_ > limits_.max_bytes) {
    const auto largest =
        std::max_element(tenants_.begin(), tenants_.end(), [](const auto& a, const auto& b) {
          return a.second.n_bytes * b.second.weight < b.second.n_bytes * a.second.weight;
        });
    Remove(largest->second, std::prev(largest->second.by_use.end()));
    if (largest->second.by_use.empty()) tenants_.erase(largest);
  }
}

}  // namespace stagecoach::router::http
