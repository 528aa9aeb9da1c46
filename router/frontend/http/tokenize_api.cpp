#include "router/frontend/http/tokenize_api.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <limits>

#include "common/status.h"
#include "router/frontend/frontend.h"
#include "router/frontend/http/api_error.h"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/json_fields.h"
#include "router/frontend/http/logprob_json.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

absl::Status Renamed(const absl::Status& status, std::string_view from, std::string_view to) {
  const std::string message(status.message());
  const std::string_view field = FieldOf(message);
  if (status.ok() || !field.starts_with(from)) return status;
  return WithField(status, fmt::format("{}{}", to, field.substr(from.size())));
}

absl::StatusOr<v1::TokenizeRequest> ParseTokenize(std::string_view body, bool& with_strings) {
  SC_ASSIGN_OR_RETURN(const json::object object, ParseObject(body));
  JsonFields fields(object);
  v1::TokenizeRequest request;
  with_strings = fields.Bool("return_token_strs").value_or(false);
  request.set_model(fields.String("model").value_or(""));
  if (fields.Any("messages") != nullptr) {
    SC_RETURN_IF_ERROR(fields.status());
    SC_ASSIGN_OR_RETURN(ApiRequest chat, ParseChatRequest(body));
    *request.mutable_chat() = std::move(chat.chat);
    return request;
  }
  if (const auto add = fields.Bool("add_special_tokens")) request.set_add_special_tokens(*add);
  const auto prompt = fields.String("prompt");
  if (!prompt) fields.Refuse("prompt", "is missing: give prompt or messages");
  SC_RETURN_IF_ERROR(fields.status());
  request.set_text(*prompt);
  return request;
}

}  // namespace

absl::StatusOr<std::string> AnswerTokenize(const Frontend& frontend, std::string_view body) {
  bool with_strings = false;
  SC_ASSIGN_OR_RETURN(const v1::TokenizeRequest request, ParseTokenize(body, with_strings));
  v1::TokenizeResponse response;
  SC_RETURN_IF_ERROR(Renamed(frontend.Tokenize(request, &response), "text", "prompt"));
  json::array ids;
  json::array strings;
  for (const int32_t id : response.token_ids()) {
    ids.emplace_back(id);
    if (!with_strings) continue;
    strings.emplace_back(ReadableToken(frontend.model().tokenizer->TokenBytes(id)));
  }
  json::object answer = {{"count", ids.size()},
                         {"max_model_len", frontend.model().max_model_len},
                         {"tokens", std::move(ids)},
                         {"token_strs", nullptr}};
  if (with_strings) answer["token_strs"] = std::move(strings);
  return json::serialize(answer);
}

absl::StatusOr<std::string> AnswerDetokenize(const Frontend& frontend, std::string_view body) {
  SC_ASSIGN_OR_RETURN(const json::object object, ParseObject(body));
  JsonFields fields(object);
  v1::DetokenizeRequest request;
  request.set_model(fields.String("model").value_or(""));
  const json::array* ids = fields.Array("tokens");
  if (ids == nullptr) fields.Refuse("tokens", "is missing");
  for (size_t i = 0; fields.status().ok() && i < ids->size(); ++i) {
    const auto id = ToInteger((*ids)[i], std::numeric_limits<int32_t>::min(),
                              std::numeric_limits<int32_t>::max());
    if (!id) fields.Refuse(fmt::format("tokens[{}]", i), "is not a token id");
    request.add_token_ids(static_cast<int32_t>(id.value_or(0)));
  }
  SC_RETURN_IF_ERROR(fields.status());
  v1::DetokenizeResponse response;
  SC_RETURN_IF_ERROR(Renamed(frontend.Detokenize(request, &response), "token_ids", "tokens"));
  return json::serialize(json::object{{"prompt", response.text()}});
}

}  // namespace stagecoach::router::http
