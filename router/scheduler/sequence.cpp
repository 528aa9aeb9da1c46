#include "router/scheduler/sequence.h"

#include <utility>

namespace stagecoach::router {

Sequence::Sequence(std::unique_ptr<SequenceRequest> request_in, Tenant* tenant_in,
                   uint64_t arrival_in, std::chrono::steady_clock::time_point submitted_in)
    : request(std::move(request_in)),
      tenant(tenant_in),
      arrival(arrival_in),
      submitted(request->past ? request->past->submitted.value_or(submitted_in) : submitted_in),
      prompt(std::move(request->prompt)),
      n_prompt(static_cast<uint32_t>(prompt->size())) {
  if (!request->past) return;
  const SequencePast& past = *request->past;
  was_admitted = past.was_admitted;
  next_prompt_logprob += past.n_prompt_logprobs;
  times = past.times;
  n_losses = past.n_losses;
  n_generated_at_loss = past.n_generated_at_loss;
  if (past.tokens.empty()) return;
  OwnTokens();
  own_tokens.insert(own_tokens.end(), past.tokens.begin(), past.tokens.end());
}

std::unique_ptr<SequenceRequest> Sequence::TakeRequest() {
  request->past = SequencePast{.tokens = {tokens().begin() + n_prompt, tokens().end()},
                               .n_prompt_logprobs = next_prompt_logprob - 1,
                               .was_admitted = was_admitted,
                               .submitted = submitted,
                               .times = times,
                               .n_losses = n_losses,
                               .n_generated_at_loss = n_generated_at_loss};
  if (prompt == nullptr) {
    own_tokens.resize(n_prompt);
    prompt = std::make_shared<const std::vector<int32_t>>(std::move(own_tokens));
  }
  request->prompt = std::move(prompt);
  return std::move(request);
}

void Sequence::OwnTokens() {
  if (prompt != nullptr) own_tokens = *std::exchange(prompt, nullptr);
}

}  // namespace stagecoach::router
