// A complete answer, assembled from the messages of its stream.
#pragma once

#include <string>
#include <vector>

#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

struct Choice {
  std::string text;
  std::string reasoning;
  std::vector<int32_t> token_ids;
  std::vector<v1::PositionLogprobs> logprobs;  // one per token of token_ids, or empty
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  std::string stop_reason;
};

class Completion {
 public:
  void Add(const v1::GenerateResponse& piece);

  const std::vector<Choice>& choices() const { return choices_; }
  const v1::Prompt& prompt() const { return prompt_; }
  const v1::Usage& usage() const { return usage_; }
  const v1::Timing& timing() const { return timing_; }
  const std::string& request_id() const { return request_id_; }

 private:
  std::string request_id_;
  std::vector<Choice> choices_;
  v1::Prompt prompt_;
  v1::Usage usage_;
  v1::Timing timing_;
};

}  // namespace stagecoach::cli
