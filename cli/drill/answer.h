// All that a stream has said, to be compared with what it should have said.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::drill {

// How the text and the tokens were cut into messages does not count.
class Answer {
 public:
  void Add(const v1::GenerateResponse& piece);

  // Compares tokens, texts, log-probabilities bit by bit, and how each choice ended.
  bool operator==(const Answer& other) const = default;
  // `whole` begins with the tokens of this answer.
  bool Begins(const Answer& whole) const;

 private:
  struct Choice {
    std::vector<int32_t> token_ids;
    std::string text;
    std::string logprobs;  // serialized
    v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
    bool operator==(const Choice& other) const = default;
  };
  std::map<uint32_t, Choice> choices_;
};

}  // namespace stagecoach::drill
