#include "router/frontend/http/responses/response_turn.h"

#include <memory>

#include "common/status.h"

namespace stagecoach::router::http {

void ResponseTurn::Finish(v1::ChatMessage answer, std::string json) {
  if (store_ == nullptr) return;
  *conversation_.add_messages() = std::move(answer);
  store_->Put(caller_, id_, {.conversation = std::move(conversation_), .json = std::move(json)});
}

absl::Status ContinueResponse(ResponseStore& store, const Caller& caller, MemoryBudget* memory,
                              const std::string& id, ApiRequest& request) {
  ResponsesForm& form = request.responses;
  const bool continues = !form.previous_response_id.empty();
  const bool is_kept = form.store && store.keeps();
  v1::ChatRequest conversation;
  if (continues) {
    SC_ASSIGN_OR_RETURN(conversation, store.Find(caller, form.previous_response_id));
    form.previous_response_id = std::string();  // it may be large
  }
  auto& messages = *request.chat.mutable_messages();
  const int n_instructions = form.has_instructions ? 1 : 0;
  for (int i = n_instructions; i < messages.size(); ++i) {
    *conversation.add_messages() = std::move(messages[i]);
  }
  messages.DeleteSubrange(n_instructions, messages.size() - n_instructions);
  messages.MergeFrom(conversation.messages());
  if (!is_kept && !continues) return absl::OkStatus();  // the body's memory is paid for
  MemoryBudget::Lease lease(memory);
  if (!lease.GrowTo(conversation.ByteSizeLong())) {
    return absl::ResourceExhaustedError(
        "the memory for requests (--request-memory) is taken; try again later");
  }
  form.turn = std::make_shared<ResponseTurn>(is_kept ? &store : nullptr, caller, id,
                                             is_kept ? std::move(conversation) : v1::ChatRequest(),
                                             std::move(lease));
  return absl::OkStatus();
}

}  // namespace stagecoach::router::http
