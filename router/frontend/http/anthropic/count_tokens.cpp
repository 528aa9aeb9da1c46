#include "router/frontend/http/anthropic/count_tokens.h"

#include <boost/json.hpp>

#include "common/status.h"
#include "router/frontend/frontend.h"
#include "router/frontend/http/anthropic/messages_request.h"

namespace stagecoach::router::http {

namespace json = boost::json;

absl::StatusOr<std::string> AnswerCountTokens(const Frontend& frontend, std::string_view body) {
  SC_ASSIGN_OR_RETURN(ApiRequest request, ParseMessagesRequest(body));
  v1::TokenizeRequest tokenize;
  tokenize.set_model(request.chat.model());
  tokenize.mutable_chat()->Swap(&request.chat);
  v1::TokenizeResponse response;
  if (const absl::Status status = frontend.Tokenize(tokenize, &response); !status.ok()) {
    return InClientTerms(request, 0, status);
  }
  return json::serialize(json::object{{"input_tokens", response.token_ids_size()}});
}

}  // namespace stagecoach::router::http
