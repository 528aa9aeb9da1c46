#include "cli/batch_line.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>

#include "cli/json_fields.h"
#include "cli/openai_batch.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

namespace json = boost::json;

absl::StatusOr<json::object> ParseObject(std::string_view text) {
  json::error_code error;
  json::value parsed = json::parse(text, error);
  if (error.failed() || !parsed.is_object()) {
    return absl::InvalidArgumentError(
        fmt::format("not a JSON object{}", error.failed() ? ": " + error.message() : ""));
  }
  return std::move(parsed.get_object());
}

LineName NameOf(const json::object& line) {
  LineName name{.key = "", .name = nullptr, .is_openai = IsOpenAiLine(line)};
  for (const char* key : {"custom_id", "id"}) {
    const json::value* value = line.if_contains(key);
    if (value == nullptr || !name.key.empty()) continue;
    name.key = key;
    name.name = *value;
  }
  return name;
}

absl::Status SetMessages(const json::value& value, v1::ChatRequest& request) {
  if (!value.is_array() || value.get_array().empty()) {
    return absl::InvalidArgumentError("messages: expected a list of {\"role\", \"content\"}");
  }
  for (const json::value& message : value.get_array()) {
    if (!message.is_object()) {
      return absl::InvalidArgumentError("messages: expected a list of {\"role\", \"content\"}");
    }
    v1::ChatMessage& added = *request.add_messages();
    for (const auto& [key, field] : message.get_object()) {
      const absl::Status status = SetField(added, key, field);
      if (!status.ok()) {
        return absl::InvalidArgumentError(
            fmt::format("messages: {}{}", absl::IsNotFound(status) ? "unknown field " : "",
                        std::string(status.message())));
      }
    }
  }
  return absl::OkStatus();
}

// Sets all fields except the prompt: those of the request, or of its sampling parameters.
template <typename Request>
absl::Status SetOptions(const json::object& line, std::string_view prompt_key, Request& request) {
  for (const auto& [key, value] : line) {
    const std::string_view name = key;
    if (name == prompt_key || name == "id" || name == "custom_id" || value.is_null()) continue;
    if (name == "response_format") {
      SC_RETURN_IF_ERROR(SetResponseFormat(value, *request.mutable_sampling()));
      continue;
    }
    absl::Status status = SetField(*request.mutable_sampling(), key, value);
    // In a batch line, "prompt" is the only name for the prompt's text.
    if (name == "text") return absl::InvalidArgumentError("unknown field text");
    if (absl::IsNotFound(status)) status = SetField(request, key, value);
    if (absl::IsNotFound(status)) {
      return absl::InvalidArgumentError(fmt::format("unknown field {}", name));
    }
    SC_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchRequest> ParseOwn(const json::object& line) {
  if (line.contains("prompt") + line.contains("prompt_ids") + line.contains("messages") != 1) {
    return absl::InvalidArgumentError("exactly one of prompt, prompt_ids and messages is needed");
  }
  if (const json::value* messages = line.if_contains("messages")) {
    v1::ChatRequest request;
    request.set_separate_reasoning(false);
    SC_RETURN_IF_ERROR(SetMessages(*messages, request));
    SC_RETURN_IF_ERROR(SetOptions(line, "messages", request));
    return request;
  }
  v1::GenerateRequest request;
  if (const json::value* prompt = line.if_contains("prompt")) {
    if (!prompt->is_string()) return absl::InvalidArgumentError("prompt: expected a string");
    SC_RETURN_IF_ERROR(SetField(request, "text", *prompt));
    SC_RETURN_IF_ERROR(SetOptions(line, "prompt", request));
  } else {
    const absl::Status status = SetField(*request.mutable_tokens(), "ids", line.at("prompt_ids"));
    if (!status.ok()) return absl::InvalidArgumentError("prompt_ids: expected a list of token ids");
    SC_RETURN_IF_ERROR(SetOptions(line, "prompt_ids", request));
  }
  return request;
}

}  // namespace

absl::StatusOr<BatchLine> ParseBatchLine(std::string_view text) {
  SC_ASSIGN_OR_RETURN(const json::object line, ParseObject(text));
  BatchLine parsed{.request = {}, .name = NameOf(line)};
  if (!parsed.name.key.empty() && !parsed.name.name.is_string() && !parsed.name.name.is_number()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: expected a string or a number", parsed.name.key));
  }
  SC_ASSIGN_OR_RETURN(parsed.request,
                      parsed.name.is_openai ? ParseOpenAiLine(line) : ParseOwn(line));
  return parsed;
}

LineName NameOfLine(std::string_view text) {
  const absl::StatusOr<json::object> line = ParseObject(text);
  return line.ok() ? NameOf(*line) : LineName{};
}

const v1::SamplingParams& SamplingOf(const BatchRequest& request) {
  return std::visit([](const auto& one) -> const v1::SamplingParams& { return one.sampling(); },
                    request);
}

}  // namespace stagecoach::cli
