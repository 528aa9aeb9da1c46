#include "cli/http_messages.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <boost/json.hpp>
#include <charconv>
#include <utility>

#include "common/status.h"

namespace stagecoach::cli {
namespace {

namespace json = boost::json;
using google::protobuf::FieldDescriptor;

// Fields have the same names on both sides.
absl::Status AddSampling(const v1::SamplingParams& sampling, json::object& body) {
  if (sampling.has_logprobs() || sampling.has_prompt_logprobs()) {
    return absl::InvalidArgumentError(
        "--logprobs and --prompt-logprobs need gRPC: give --server HOST:PORT");
  }
  const auto& reflection = *sampling.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(sampling, &fields);
  for (const FieldDescriptor* field : fields) {
    json::value value;
    if (field->is_map()) {
      json::object& map = value.emplace_object();
      for (const auto& [id, bias] : sampling.logit_bias()) map[fmt::format("{}", id)] = bias;
    } else if (field->is_repeated()) {
      json::array& array = value.emplace_array();
      for (int i = 0; i < reflection.FieldSize(sampling, field); ++i) {
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
          array.emplace_back(reflection.GetRepeatedString(sampling, field, i));
        } else {
          array.emplace_back(reflection.GetRepeatedInt32(sampling, field, i));
        }
      }
    } else {
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_FLOAT:
          // Converts through text, so that 0.7f becomes 0.7 and not 0.699999988.
          value = std::stod(fmt::format("{}", reflection.GetFloat(sampling, field)));
          break;
        case FieldDescriptor::CPPTYPE_INT32:
          value = reflection.GetInt32(sampling, field);
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          value = reflection.GetUInt32(sampling, field);
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          value = reflection.GetUInt64(sampling, field);
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          value = reflection.GetBool(sampling, field);
          break;
        default:
          return absl::InvalidArgumentError(
              fmt::format("{} needs gRPC: give --server HOST:PORT", field->name()));
      }
    }
    body[field->name()] = std::move(value);
  }
  return absl::OkStatus();
}

template <typename Request>
absl::StatusOr<json::object> Begin(const Request& request) {
  json::object body{{"stream", true}, {"stream_options", {{"include_usage", true}}}};
  SC_RETURN_IF_ERROR(AddSampling(request.sampling(), body));
  if (request.priority() != 0) body["priority"] = request.priority();
  return body;
}

std::string Text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

uint32_t Number(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_number() ? value->to_number<uint32_t>() : 0;
}

v1::FinishReason ToFinishReason(std::string_view name) {
  if (name.empty()) return v1::FINISH_REASON_UNSPECIFIED;
  if (name == "length") return v1::FINISH_REASON_LENGTH;
  return name == "tool_calls" ? v1::FINISH_REASON_TOOL_CALLS : v1::FINISH_REASON_STOP;
}

}  // namespace

absl::StatusOr<json::object> ToHttp(const v1::GenerateRequest& request) {
  SC_ASSIGN_OR_RETURN(json::object body, Begin(request));
  if (request.has_tokens()) {
    body["prompt"] = json::array(request.tokens().ids().begin(), request.tokens().ids().end());
  } else {
    body["prompt"] = request.text();
  }
  if (request.echo()) body["echo"] = true;
  return body;
}

absl::StatusOr<json::object> ToHttp(const v1::ChatRequest& request) {
  SC_ASSIGN_OR_RETURN(json::object body, Begin(request));
  json::array& messages = body["messages"].emplace_array();
  for (const v1::ChatMessage& message : request.messages()) {
    messages.push_back(json::object{{"role", message.role()}, {"content", message.content()}});
  }
  if (request.has_separate_reasoning()) {
    body["separate_reasoning"] = request.separate_reasoning();
  }
  return body;
}

std::vector<v1::GenerateResponse> PiecesOf(const json::object& event) {
  std::vector<v1::GenerateResponse> pieces;
  const json::value* choices = event.if_contains("choices");
  if (choices != nullptr && choices->is_array()) {
    for (const json::value& value : choices->get_array()) {
      if (!value.is_object()) continue;
      const json::object& choice = value.get_object();
      v1::GenerateResponse& piece = pieces.emplace_back();
      piece.set_request_id(Text(event, "id"));
      piece.set_index(Number(choice, "index"));
      piece.set_text(Text(choice, "text"));
      if (const json::value* delta = choice.if_contains("delta");
          delta != nullptr && delta->is_object()) {
        piece.set_text(Text(delta->get_object(), "content"));
        // Servers use one of these two names.
        piece.set_reasoning(Text(delta->get_object(), "reasoning_content"));
        if (piece.reasoning().empty()) piece.set_reasoning(Text(delta->get_object(), "reasoning"));
      }
      piece.set_finish_reason(ToFinishReason(Text(choice, "finish_reason")));
      if (const json::value* reason = choice.if_contains("stop_reason")) {
        piece.set_stop_reason(reason->is_string()   ? std::string(reason->get_string())
                              : reason->is_number() ? json::serialize(*reason)
                                                    : "");
      }
    }
  }
  if (const json::value* value = event.if_contains("usage");
      value != nullptr && value->is_object()) {
    const json::object& from = value->get_object();
    v1::Usage& usage = *pieces.emplace_back().mutable_usage();
    usage.set_prompt_tokens(Number(from, "prompt_tokens"));
    usage.set_completion_tokens(Number(from, "completion_tokens"));
    if (const json::value* details = from.if_contains("prompt_tokens_details");
        details != nullptr && details->is_object()) {
      usage.set_cached_tokens(Number(details->get_object(), "cached_tokens"));
      if (const json::value* stored = details->get_object().if_contains("stored_tokens");
          stored != nullptr && stored->is_object()) {
        v1::StoredTokens& tokens = *usage.mutable_stored_tokens();
        tokens.set_host(Number(stored->get_object(), "host"));
        tokens.set_disk(Number(stored->get_object(), "disk"));
        tokens.set_store(Number(stored->get_object(), "store"));
      }
    }
  }
  return pieces;
}

absl::Status EventError(const json::object& event) {
  const json::value* error = event.if_contains("error");
  if (error == nullptr || error->is_null()) return absl::OkStatus();
  return absl::InternalError(error->is_object() ? Text(error->get_object(), "message")
                                                : json::serialize(*error));
}

absl::StatusOr<v1::Model> ModelOf(std::string_view models) {
  boost::system::error_code error;
  const json::value parsed = json::parse({models.data(), models.size()}, error);
  const json::value* data =
      !error && parsed.is_object() ? parsed.get_object().if_contains("data") : nullptr;
  if (data == nullptr || !data->is_array() || data->get_array().empty() ||
      !data->get_array().front().is_object()) {
    return absl::UnavailableError("the server there does not have OpenAI's API");
  }
  const json::object& first = data->get_array().front().get_object();
  v1::Model model;
  model.set_id(Text(first, "id"));
  model.set_max_model_len(Number(first, "max_model_len"));
  return model;
}

void EventReader::Push(std::string_view bytes) {
  for (const char byte : bytes) {
    if (byte != '\n') {
      line_ += byte;
      continue;
    }
    if (line_.ends_with('\r')) line_.pop_back();
    TakeLine();
    line_.clear();
  }
}

void EventReader::TakeLine() {
  constexpr std::string_view kData = "data:", kId = "id:", kDone = "[DONE]";
  if (line_.starts_with(kId)) {
    uint64_t id = 0;
    const size_t digits = line_.find_first_not_of(' ', kId.size());
    if (digits == std::string::npos) return;
    const char* const end = line_.data() + line_.size();
    const auto [rest, error] = std::from_chars(line_.data() + digits, end, id);
    if (error == std::errc() && rest == end) id_ = id;
  } else if (line_.starts_with(kData)) {
    const std::string data = line_.substr(kData.size());
    boost::system::error_code error;
    const json::value parsed = json::parse(data, error);
    if (!error && parsed.is_object()) on_event_(parsed.get_object(), id_);
    is_done_ = is_done_ || data.find(kDone) < 2;
    id_.reset();
  }
}

}  // namespace stagecoach::cli
