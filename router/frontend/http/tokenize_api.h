// The bodies of /tokenize and /detokenize.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach::router {
class Frontend;
}

namespace stagecoach::router::http {

// {"prompt"} or {"messages"} to {"count", "max_model_len", "tokens", "token_strs"}. Takes as long
// as the text is long. INVALID_ARGUMENT names the field.
absl::StatusOr<std::string> AnswerTokenize(const Frontend& frontend, std::string_view body);

// {"tokens"} to {"prompt"}.
absl::StatusOr<std::string> AnswerDetokenize(const Frontend& frontend, std::string_view body);

}  // namespace stagecoach::router::http
