// The names of finish reasons, as OpenAI's API spells them.
#pragma once

#include <string>

#include "stagecoach/v1/inference.pb.h"

namespace stagecoach {

// Empty: the choice has not ended, or without a reason that has a name.
inline std::string FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_TOOL_CALLS:
      return "tool_calls";
    default:
      return "";
  }
}

}  // namespace stagecoach
