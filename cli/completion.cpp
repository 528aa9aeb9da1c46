#include "cli/completion.h"

namespace stagecoach::cli {

void Completion::Add(const v1::GenerateResponse& piece) {
  if (!piece.request_id().empty()) request_id_ = piece.request_id();
  if (piece.has_prompt()) prompt_.MergeFrom(piece.prompt());
  if (piece.has_usage()) usage_ = piece.usage();
  if (piece.has_timing()) timing_ = piece.timing();

  // A message that has only usage belongs to no choice.
  const bool has_choice = !piece.text().empty() || !piece.reasoning().empty() ||
                          piece.token_ids_size() > 0 ||
                          piece.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  if (!has_choice) return;
  if (choices_.size() <= piece.index()) choices_.resize(piece.index() + 1);
  Choice& choice = choices_[piece.index()];
  choice.text += piece.text();
  choice.reasoning += piece.reasoning();
  choice.token_ids.insert(choice.token_ids.end(), piece.token_ids().begin(),
                          piece.token_ids().end());
  choice.logprobs.insert(choice.logprobs.end(), piece.logprobs().begin(), piece.logprobs().end());
  if (piece.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
    choice.finish_reason = piece.finish_reason();
    choice.stop_reason = piece.stop_reason();
  }
}

}  // namespace stagecoach::cli
