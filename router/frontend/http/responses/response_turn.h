// One response as a part of a conversation: what was said before it, and that it is kept.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "router/access/caller.h"
#include "router/access/memory_budget.h"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/responses/response_store.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Pays for the conversation of a response, and keeps it when it is complete. One thread at a time.
class ResponseTurn {
 public:
  // `conversation`: what was said before the response. `lease` pays for it. `store` outlives this;
  // null: the response will not be kept, and `conversation` is not needed.
  ResponseTurn(ResponseStore* store, Caller caller, std::string id, v1::ChatRequest conversation,
               MemoryBudget::Lease lease)
      : store_(store),
        caller_(std::move(caller)),
        id_(std::move(id)),
        conversation_(std::move(conversation)),
        lease_(std::move(lease)) {}

  // The response said `answer`, and the client gets it as `json`. Call it once.
  void Finish(v1::ChatMessage answer, std::string json);

 private:
  ResponseStore* const store_;
  const Caller caller_;
  const std::string id_;
  v1::ChatRequest conversation_;
  const MemoryBudget::Lease lease_;
};

// Puts the conversation of previous_response_id between the instructions and the input of
// `request`. Unless the client does not want it, the response will be kept as `id`. `store` and
// `memory` outlive the request. INVALID_ARGUMENT: there is no such response. RESOURCE_EXHAUSTED:
// there is no memory for the conversation.
absl::Status ContinueResponse(ResponseStore& store, const Caller& caller, MemoryBudget* memory,
                              const std::string& id, ApiRequest& request);

}  // namespace stagecoach::router::http
