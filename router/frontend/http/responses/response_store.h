// Keeps finished responses, for requests that continue one by its id or read it again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/flags/front_end_flags.h"
#include "common/mutex.h"
#include "router/access/caller.h"
#include "router/access/memory_budget.h"
#include "router/frontend/http/responses/kept_response.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// A tenant finds only its own responses. The memory is limited as a whole: if it is short, the
// tenant that uses most relative to its weight loses the response that it has not used for the
// longest time. Thread-safe.
class ResponseStore {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ResponseStore(const ResponseLimits& limits) : limits_(limits) {}

  bool keeps() const { return limits_.keep.count() > 0 && limits_.max_bytes > 0; }

  // Keeps `response`, and replaces an older one with the same id. Keeps nothing that is too large.
  void Put(const Caller& caller, const std::string& id, KeptResponse response,
           Clock::time_point now = Clock::now());

  // The conversation up to and including the response. INVALID_ARGUMENT with its own code: the
  // tenant has none with this id.
  absl::StatusOr<v1::ChatRequest> Find(const Caller& caller, const std::string& id,
                                       Clock::time_point now = Clock::now());

  // The whole response; `lease` pays for it, and for what is made of it. NOT_FOUND: the tenant has
  // none with this id. RESOURCE_EXHAUSTED: there is no memory for it.
  absl::StatusOr<KeptResponse> Get(const Caller& caller, const std::string& id,
                                   MemoryBudget::Lease& lease,
                                   Clock::time_point now = Clock::now());

  // Forgets the response. NOT_FOUND: the tenant has none with this id.
  absl::Status Delete(const Caller& caller, const std::string& id,
                      Clock::time_point now = Clock::now());

 private:
  struct Response {
    std::string id;
    std::string conversation;  // serialized
    std::string json;
    Clock::time_point used_at;
    size_t n_bytes() const { return conversation.size() + json.size() + id.size() + kOwnBytes; }
  };
  struct Tenant {
    uint32_t weight = 1;
    size_t n_bytes = 0;
    std::list<Response> by_use;  // the one used last is in front
    std::map<std::string, std::list<Response>::iterator, std::less<>> by_id;
  };
  // Memory of a response beside its text, about.
  static constexpr size_t kOwnBytes = 400;

  // The response, which is then the one used last; null: the tenant has none with this id.
  const Response* Use(const Caller& caller, const std::string& id, Clock::time_point now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(Tenant& tenant, std::list<Response>::iterator response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveOld(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ResponseLimits limits_;
  Mutex mutex_;
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);  // only those with responses
  size_t n_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace stagecoach::router::http
