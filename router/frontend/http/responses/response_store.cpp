#include "router/frontend/http/responses/response_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "router/text/error_code.h"

namespace stagecoach::router::http {
namespace {

// A response that a client reads is in memory as text, as messages, as JSON values and as the
// answer.
constexpr size_t kCopies = 4;

constexpr char kWhyNotKept[] =
    ": it was not stored, or not for so long (--response-time, --response-memory)";

absl::Status NotKept(const std::string& id) {
  return WithErrorCode(absl::NotFoundError(fmt::format("the response '{}' is not kept{}",
                                                       id.substr(0, 80), kWhyNotKept)),
                       kResponseNotFound);
}

absl::StatusOr<v1::ChatRequest> Parsed(const std::string& text) {
  v1::ChatRequest conversation;
  if (!conversation.ParseFromString(text)) return absl::InternalError("a kept response is broken");
  return conversation;
}

}  // namespace

void ResponseStore::Put(const Caller& caller, const std::string& id, KeptResponse kept,
                        Clock::time_point now) {
  if (!keeps()) return;
  Response response{.id = id,
                    .conversation = kept.conversation.SerializeAsString(),
                    .json = std::move(kept.json),
                    .used_at = now};
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
  std::string conversation;
  {
    const MutexLock lock(mutex_);
    if (const Response* found = Use(caller, id, now)) conversation = found->conversation;
  }
  if (conversation.empty()) {
    return WithErrorCode(
        absl::InvalidArgumentError(fmt::format(
            "previous_response_id: the response '{}' is not kept{}; send the whole conversation",
            id.substr(0, 80), kWhyNotKept)),
        kPreviousResponseNotFound);
  }
  return Parsed(conversation);
}

absl::StatusOr<KeptResponse> ResponseStore::Get(const Caller& caller, const std::string& id,
                                                MemoryBudget::Lease& lease, Clock::time_point now) {
  KeptResponse kept;
  std::string conversation;
  {
    const MutexLock lock(mutex_);
    const Response* found = Use(caller, id, now);
    if (found == nullptr) return NotKept(id);
    if (!lease.GrowTo(kCopies * found->n_bytes())) {
      return absl::ResourceExhaustedError(
          "the memory for requests (--request-memory) is taken; try again later");
    }
    conversation = found->conversation;
    kept.json = found->json;
  }
  SC_ASSIGN_OR_RETURN(kept.conversation, Parsed(conversation));
  return kept;
}

absl::Status ResponseStore::Delete(const Caller& caller, const std::string& id,
                                   Clock::time_point now) {
  const MutexLock lock(mutex_);
  RemoveOld(now);
  const auto tenant = tenants_.find(caller.tenant);
  if (tenant == tenants_.end()) return NotKept(id);
  const auto found = tenant->second.by_id.find(id);
  if (found == tenant->second.by_id.end()) return NotKept(id);
  Remove(tenant->second, found->second);
  if (tenant->second.by_use.empty()) tenants_.erase(tenant);
  return absl::OkStatus();
}

const ResponseStore::Response* ResponseStore::Use(const Caller& caller, const std::string& id,
                                                  Clock::time_point now) {
  RemoveOld(now);
  const auto tenant = tenants_.find(caller.tenant);
  if (tenant == tenants_.end()) return nullptr;
  const auto found = tenant->second.by_id.find(id);
  if (found == tenant->second.by_id.end()) return nullptr;
  std::list<Response>& by_use = tenant->second.by_use;
  by_use.splice(by_use.begin(), by_use, found->second);
  found->second->used_at = now;
  return &*found->second;
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
