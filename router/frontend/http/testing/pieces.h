// Parts of a stream of generated text, as the scheduler's side sends them.
#pragma once

#include <string>
#include <utility>

#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

inline v1::GenerateResponse Piece(const std::string& text, int n_tokens = 1) {
  v1::GenerateResponse message;
  message.set_text(text);
  for (int i = 0; i < n_tokens; ++i) message.add_token_ids(5);
  return message;
}

// A first part, which also has the prompt.
inline v1::GenerateResponse WithPrompt(v1::GenerateResponse message) {
  for (int i = 0; i < 7; ++i) message.mutable_prompt()->add_token_ids(i);
  return message;
}

}  // namespace stagecoach::router::http
