#include "router/scheduler/sequence.h"

#include <utility>

namespace stagecoach::router {

Sequence::Sequence(std::unique_ptr<SequenceRequest> request_in, Tenant* tenant_in,
                   uint64_t arrival_in, std::chrono::steady_clock::time_point submitted_in)
    : request(std::move(request_in)),
      tenant(tenant_in),
      arrival(arrival_in),
      submitted(submitted_in),
      prompt(std::move(request->prompt)),
      n_prompt(static_cast<uint32_t>(prompt->size())) {
  if (!request->past) return;
  next_prompt_logprob += request->past->n_prompt_logprobs;
  OwnTokens();
  own_tokens.insert(own_tokens.end(), request->past->tokens.begin(), request->past->tokens.end());
}

void Sequence::OwnTokens() {
  if (prompt != nullptr) own_tokens = *std::exchange(prompt, nullptr);
}

}  // namespace stagecoach::router
