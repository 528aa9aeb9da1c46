// Answers /tokenize and /detokenize.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach::router {
class Frontend;
}

namespace stagecoach::router::http {

// Turns {"prompt"} or {"messages"} into {"count", "max_model_len", "tokens", "token_strs"}. Its
// time grows with the length of the text. INVALID_ARGUMENT names the field.
absl::StatusOr<std::string> AnswerTokenize(const Frontend& frontend, std::string_view body);

// Turns {"tokens"} into {"prompt"}.
absl::StatusOr<std::string> AnswerDetokenize(const Frontend& frontend, std::string_view body);

}  // namespace stagecoach::router::http
