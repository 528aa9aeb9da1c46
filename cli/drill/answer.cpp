#include "cli/drill/answer.h"

#include <algorithm>
#include <span>

namespace stagecoach::drill {

void Answer::Add(const v1::GenerateResponse& piece) {
  Choice& choice = choices_[piece.index()];
  choice.token_ids.insert(choice.token_ids.end(), piece.token_ids().begin(),
                          piece.token_ids().end());
  choice.text += piece.text();
  for (const v1::PositionLogprobs& logprobs : piece.logprobs()) {
    choice.logprobs += logprobs.SerializeAsString();
  }
  if (piece.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
    choice.finish_reason = piece.finish_reason();
  }
}

bool Answer::Begins(const Answer& whole) const {
  return std::ranges::all_of(choices_, [&whole](const auto& entry) {
    const auto other = whole.choices_.find(entry.first);
    const std::vector<int32_t>& begin = entry.second.token_ids;
    return other != whole.choices_.end() && begin.size() <= other->second.token_ids.size() &&
           std::ranges::equal(begin, std::span(other->second.token_ids).first(begin.size()));
  });
}

}  // namespace stagecoach::drill
