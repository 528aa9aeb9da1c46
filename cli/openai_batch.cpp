#include "cli/openai_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <ctime>

#include "cli/json_fields.h"
#include "cli/json_out.h"
#include "common/rpc/finish_reason.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

namespace json = boost::json;

constexpr std::string_view kChatUrl = "/v1/chat/completions";
constexpr std::string_view kCompletionsUrl = "/v1/completions";
// These fields do not change the answer.
constexpr std::array<std::string_view, 6> kIgnored = {"user",         "metadata", "store",
                                                      "service_tier", "stream",   "stream_options"};

absl::Status Wrong(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", field, what));
}

// Content is a string or a list of {"type": "text", "text"}.
absl::StatusOr<std::string> ContentText(const json::value& content) {
  if (content.is_string()) return std::string(content.get_string());
  std::string text;
  if (const json::array* parts = content.if_array()) {
    for (const json::value& part : *parts) {
      const json::object* object = part.if_object();
      const json::value* inner = object == nullptr ? nullptr : object->if_contains("text");
      if (inner == nullptr || !inner->is_string())
        return Wrong("messages", "only text content is supported");
      text += inner->get_string();
    }
    return text;
  }
  return Wrong("messages", "content must be a text or a list of texts");
}

absl::Status SetOpenAiMessages(const json::value& messages, v1::ChatRequest& request) {
  const json::array* array = messages.if_array();
  if (array == nullptr || array->empty()) return Wrong("messages", "expected a list");
  for (const json::value& value : *array) {
    const json::object* message = value.if_object();
    if (message == nullptr) return Wrong("messages", "expected a list of {\"role\", \"content\"}");
    v1::ChatMessage& added = *request.add_messages();
    for (const auto& [key, field] : *message) {
      if (field.is_null()) continue;
      if (key == "content") {
        SC_ASSIGN_OR_RETURN(*added.mutable_content(), ContentText(field));
      } else if (key == "role" || key == "name" || key == "tool_call_id") {
        SC_RETURN_IF_ERROR(SetField(added, key, field));
      } else {
        return Wrong("messages", fmt::format("unknown field {}", std::string_view(key)));
      }
    }
  }
  return absl::OkStatus();
}

// Sets one field of a body other than its prompt.
template <typename Request>
absl::Status SetBodyField(std::string_view key, const json::value& value, const json::object& body,
                          Request& request) {
  v1::SamplingParams& sampling = *request.mutable_sampling();
  if (std::find(kIgnored.begin(), kIgnored.end(), key) != kIgnored.end()) return absl::OkStatus();
  if (key == "response_format") return SetResponseFormat(value, sampling);
  if (key == "max_completion_tokens") return SetField(sampling, "max_tokens", value);
  if (key == "stop" && value.is_string()) {
    return SetField(sampling, "stop", json::array{value});
  }
  if (key == "logprobs" && value.is_bool()) {
    const json::value* top = body.if_contains("top_logprobs");
    if (!value.get_bool()) return absl::OkStatus();
    return SetField(sampling, "logprobs", top == nullptr ? json::value(0) : *top);
  }
  if (key == "top_logprobs") return absl::OkStatus();
  absl::Status status = SetField(sampling, key, value);
  if (absl::IsNotFound(status)) status = SetField(request, key, value);
  if (absl::IsNotFound(status)) {
    return absl::InvalidArgumentError(fmt::format("body: unknown field {}", key));
  }
  return status;
}

template <typename Request>
absl::Status SetBody(const json::object& body, std::string_view prompt_key, Request& request) {
  for (const auto& [key, value] : body) {
    if (std::string_view(key) == prompt_key || value.is_null()) continue;
    SC_RETURN_IF_ERROR(SetBodyField(key, value, body, request));
  }
  return absl::OkStatus();
}

int HttpStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

json::object Token(const v1::TokenLogprob& token) {
  json::array bytes;
  for (const char c : token.token()) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", ToValidUtf8(token.token())},
          {"logprob", token.logprob()},
          {"bytes", std::move(bytes)}};
}

json::value ChatLogprobs(const Choice& choice) {
  if (choice.logprobs.empty()) return nullptr;
  json::array content;
  for (const v1::PositionLogprobs& position : choice.logprobs) {
    json::object one = Token(position.chosen());
    json::array& top = one["top_logprobs"].emplace_array();
    for (const v1::TokenLogprob& token : position.top()) top.push_back(Token(token));
    content.push_back(std::move(one));
  }
  return json::object{{"content", std::move(content)}};
}

json::object Body(const BatchRequest& request, const Completion& completion,
                  const std::string& model) {
  const bool is_chat = std::holds_alternative<v1::ChatRequest>(request);
  json::object body{{"id", (is_chat ? "chatcmpl-" : "cmpl-") + completion.request_id()},
                    {"object", is_chat ? "chat.completion" : "text_completion"},
                    {"created", std::time(nullptr)},
                    {"model", model}};
  json::array& choices = body["choices"].emplace_array();
  for (const Choice& choice : completion.choices()) {
    json::object one{{"index", choices.size()}};
    const std::string text = ToValidUtf8(choice.text);
    if (is_chat) {
      json::object message{{"role", "assistant"}, {"content", text}};
      if (!choice.reasoning.empty()) {
        message["reasoning_content"] = ToValidUtf8(choice.reasoning);
      }
      one["message"] = std::move(message);
      one["logprobs"] = ChatLogprobs(choice);
    } else {
      one["text"] = text;
      one["logprobs"] = nullptr;
    }
    one["finish_reason"] = FinishReasonName(choice.finish_reason);
    one["stop_reason"] = StopReasonJson(SamplingOf(request), choice.stop_reason);
    choices.push_back(std::move(one));
  }
  const v1::Usage& usage = completion.usage();
  body["usage"] = {{"prompt_tokens", usage.prompt_tokens()},
                   {"completion_tokens", usage.completion_tokens()},
                   {"total_tokens", usage.prompt_tokens() + usage.completion_tokens()},
                   {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens()}}}};
  return body;
}

json::object Result(size_t index, const LineName& name, int status, const std::string& request_id,
                    json::object body) {
  return {{"id", fmt::format("batch_req_{}", index)},
          {"custom_id", name.name},
          {"response",
           {{"status_code", status}, {"request_id", request_id}, {"body", std::move(body)}}},
          {"error", nullptr}};
}

}  // namespace

bool IsOpenAiLine(const json::object& line) { return line.contains("body"); }

absl::StatusOr<BatchRequest> ParseOpenAiLine(const json::object& line) {
  for (const auto& [key, value] : line) {
    const std::string_view name = key;
    if (name != "custom_id" && name != "id" && name != "method" && name != "url" &&
        name != "body") {
      return absl::InvalidArgumentError(fmt::format("unknown field {} next to body", name));
    }
  }
  const json::object* body = line.at("body").if_object();
  if (body == nullptr) return Wrong("body", "expected an object");
  if (const json::value* method = line.if_contains("method");
      method != nullptr && *method != "POST") {
    return Wrong("method", "only POST is supported");
  }
  const json::value* given = line.if_contains("url");
  const std::string url =
      given != nullptr && given->is_string() ? std::string(given->get_string()) : "";
  if (url == kChatUrl) {
    v1::ChatRequest request;
    const json::value* messages = body->if_contains("messages");
    if (messages == nullptr) return Wrong("body", "needs messages");
    SC_RETURN_IF_ERROR(SetOpenAiMessages(*messages, request));
    SC_RETURN_IF_ERROR(SetBody(*body, "messages", request));
    return request;
  }
  if (url == kCompletionsUrl) {
    v1::GenerateRequest request;
    const json::value* prompt = body->if_contains("prompt");
    if (prompt == nullptr) return Wrong("body", "needs a prompt");
    if (prompt->is_string()) {
      request.set_text(std::string(prompt->get_string()));
    } else if (!SetField(*request.mutable_tokens(), "ids", *prompt).ok()) {
      return Wrong("prompt", "expected a string or a list of token ids");
    }
    SC_RETURN_IF_ERROR(SetBody(*body, "prompt", request));
    return request;
  }
  return Wrong("url", fmt::format("only {} and {} are supported", kChatUrl, kCompletionsUrl));
}

absl::Status SetResponseFormat(const json::value& format, v1::SamplingParams& sampling) {
  constexpr std::string_view kField = "response_format";
  const json::object* object = format.if_object();
  const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  if (type == nullptr) return Wrong(kField, "expected an object with a type");
  if (*type == "text") return absl::OkStatus();
  if (*type == "json_object") {
    sampling.mutable_grammar()->set_json_object(true);
    return absl::OkStatus();
  }
  const json::value* named = object->if_contains("json_schema");
  const json::value* schema =
      named == nullptr || !named->is_object() ? nullptr : named->get_object().if_contains("schema");
  if (*type != "json_schema") return Wrong(kField, "type must be text, json_object or json_schema");
  if (schema == nullptr) return Wrong(kField, "json_schema.schema is missing");
  sampling.mutable_grammar()->set_json_schema(json::serialize(*schema));
  return absl::OkStatus();
}

json::object OpenAiResult(size_t index, const LineName& name, const BatchRequest& request,
                          const Completion& completion, const std::string& model) {
  return Result(index, name, 200, completion.request_id(), Body(request, completion, model));
}

json::object OpenAiError(size_t index, const LineName& name, const absl::Status& status) {
  const int http = HttpStatus(status.code());
  return Result(index, name, http, "",
                {{"error",
                  {{"message", ToValidUtf8(std::string(status.message()))},
                   {"type", http < 500 ? "invalid_request_error" : "server_error"},
                   {"param", nullptr},
                   {"code", absl::StatusCodeToString(status.code())}}}});
}

}  // namespace stagecoach::cli
