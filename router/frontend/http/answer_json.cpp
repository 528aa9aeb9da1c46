#include "router/frontend/http/answer_json.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "common/check.h"
#include "common/json_text.h"
#include "router/frontend/http/event_stream.h"
#include "router/frontend/http/output_json.h"
#include "router/frontend/http/usage_json.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

constexpr char kEventStart[] = "data: ";
constexpr char kEventEnd[] = "\n\n";

bool SkipsSpecialTokens(const ApiRequest& request) {
  if (request.is_chat) {
    return !request.chat.has_skip_special_tokens() || request.chat.skip_special_tokens();
  }
  const v1::GenerateRequest& first = request.prompts.front();
  return !first.has_skip_special_tokens() || first.skip_special_tokens();
}

json::object Head(const std::string& id, const char* object, int64_t created,
                  const std::string& model) {
  return {{"id", id}, {"object", object}, {"created", created}, {"model", model}};
}

// The object's text up to its closing brace.
std::string Open(const json::object& object) {
  std::string text = json::serialize(object);
  text.pop_back();
  return text;
}

void AppendJson(json::string_view text, std::string& to) {
  json::serializer serializer;
  serializer.reset(text);
  std::array<char, 512> piece;
  while (!serializer.done()) to += std::string_view(serializer.read(piece.data(), piece.size()));
}

void Append(json::array& to, const TokenList& ids) {
  for (const int32_t id : ids) to.emplace_back(id);
}

const char* FinishReasonName(v1::FinishReason reason) {
  if (reason == v1::FINISH_REASON_TOOL_CALLS) return "tool_calls";
  return reason == v1::FINISH_REASON_LENGTH ? "length" : "stop";
}

}  // namespace

AnswerJson::AnswerJson(const ApiRequest& request, const ServedModel& model,
                       const std::string& request_id, int64_t created_unix_s)
    : request_(request),
      id_((request.is_chat ? "chatcmpl-" : "cmpl-") + request_id),
      created_unix_s_(created_unix_s),
      model_name_(model.name),
      event_head_(kEventStart +
                  Open(Head(id_, request.is_chat ? "chat.completion.chunk" : "text_completion",
                            created_unix_s, model_name_))),
      prompts_(request.n_prompts()) {
  const CompletionLogprobs logprobs(model.tokenizer.get(), SkipsSpecialTokens(request));
  choices_.resize(request.n_prompts() * request.n(), Choice{.completion_logprobs = logprobs});
}

size_t AnswerJson::Add(size_t i, const v1::GenerateResponse& message) {
  Prompt& prompt = prompts_[i];
  if (message.has_prompt()) {
    prompt.n_tokens = static_cast<uint32_t>(message.prompt().token_ids_size());
    if (request_.echo || request_.prompt_logprobs || request_.return_token_ids) {
      prompt.content = message.prompt();
    }
  }
  if (message.has_usage()) prompt.usage = message.usage();

  const size_t index = i * request_.n() + message.index();
  Choice& choice = choices_[index];
  if (!choice.begun && request_.echo) AddEcho(prompt, choice);
  if (!request_.without_completion) {
    choice.n_tokens += static_cast<uint32_t>(message.token_ids_size());
    choice.n_reasoning_tokens += message.reasoning_tokens();
    choice.text += message.text();
    choice.reasoning += message.reasoning();
    MergeToolCalls(message.tool_calls(), choice.tool_calls);
    AddJsonEvents(message.json_events(), choice.json_events);
    if (request_.return_token_ids) Append(choice.token_ids, message.token_ids());
    if (request_.logprobs && request_.is_chat) {
      for (json::value& one : ChatLogprobs(message.logprobs())) {
        choice.chat_logprobs.push_back(std::move(one));
      }
    } else if (request_.logprobs) {
      for (const auto& position : message.logprobs()) choice.completion_logprobs.Add(position);
    }
  }
  if (message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
    choice.finish_reason = FinishReasonName(message.finish_reason());
    choice.stop_reason = StopReason(message);
  }
  return index;
}

void AnswerJson::AddEcho(const Prompt& prompt, Choice& choice) const {
  choice.text += prompt.content.text();
  if (!request_.logprobs) return;
  choice.completion_logprobs.AddFirst(prompt.content.token_ids(0));
  for (const auto& position : prompt.content.logprobs()) choice.completion_logprobs.Add(position);
}

json::value AnswerJson::StopReason(const v1::GenerateResponse& message) const {
  const std::string& reason = message.stop_reason();
  for (const std::string& stop : request_.sampling().stop()) {
    if (stop == reason) return json::value(reason);
  }
  for (const int32_t id : request_.sampling().stop_token_ids()) {
    if (fmt::format("{}", id) == reason) return json::value(id);
  }
  return nullptr;
}

bool AnswerJson::HasNews(const Choice& choice) const {
  return !choice.text.empty() || !choice.reasoning.empty() || !choice.tool_calls.empty() ||
         !choice.json_events.empty() || !choice.finish_reason.is_null() ||
         !choice.token_ids.empty() || request_.logprobs;
}

json::value AnswerJson::TakeLogprobs(Choice& choice) const {
  if (!request_.logprobs) return nullptr;
  if (!request_.is_chat) return choice.completion_logprobs.Take();
  return json::object{{"content", std::exchange(choice.chat_logprobs, {})}, {"refusal", nullptr}};
}

void AnswerJson::TakeContent(Choice& choice, bool is_delta, json::object& content) const {
  if (!choice.begun) content.emplace("role", "assistant");
  if (!choice.reasoning.empty()) content.emplace("reasoning_content", choice.reasoning);
  const bool has_calls = !choice.tool_calls.empty();
  if (!choice.text.empty() || (!has_calls && choice.reasoning.empty() && !request_.json_events)) {
    content.emplace("content", choice.text);
  } else if (!is_delta) {
    content.emplace("content", nullptr);
  }
  if (has_calls) content.emplace("tool_calls", ToolCallsJson(choice.tool_calls, is_delta));
  choice.reasoning.clear();
  choice.tool_calls.clear();
}

void AnswerJson::TakeEvents(Choice& choice, json::object& target) const {
  if (choice.json_events.empty()) return;
  target.emplace("json_events", std::exchange(choice.json_events, {}));
}

json::object AnswerJson::FirstDelta() const {
  json::object delta;
  delta.emplace("role", "assistant");
  if (!request_.json_events) delta.emplace("content", "");
  return delta;
}

json::object AnswerJson::TakeChoice(size_t index, bool is_delta, const json::storage_ptr& memory) {
  Choice& choice = choices_[index];
  json::object object(memory);
  object.reserve(6);
  object.emplace("index", index);
  if (request_.is_chat) {
    json::object content(memory);
    TakeContent(choice, is_delta, content);
    TakeEvents(choice, content);
    object.emplace(is_delta ? "delta" : "message", std::move(content));
  } else {
    object.emplace("text", choice.text);
    TakeEvents(choice, object);
  }
  object.emplace("logprobs", TakeLogprobs(choice));
  object.emplace("finish_reason", std::move(choice.finish_reason));
  object.emplace("stop_reason", std::move(choice.stop_reason));
  if (request_.return_token_ids) {
    object.emplace("token_ids", std::exchange(choice.token_ids, {}));
  }
  choice.text.clear();
  choice.finish_reason = nullptr;
  choice.stop_reason = nullptr;
  choice.begun = true;
  return object;
}

void AnswerJson::AppendEvent(std::string& events, const json::array& choices,
                             json::object more) const {
  if (request_.continuous_usage) more.emplace("usage", Usage());
  events += event_head_;
  events += ",\"choices\":";
  AppendJsonText(choices, events);
  AppendEnd(events, more);
}

void AnswerJson::AppendEnd(std::string& events, const json::object& more) const {
  if (!more.empty()) {
    events += ',';
    events += std::string_view(json::serialize(more)).substr(1);
    events.pop_back();
  }
  if (request_.include_usage && !more.contains("usage")) events += ",\"usage\":null";
  events += '}';
  events += kEventEnd;
}

bool AnswerJson::HasTextAlone(const Choice& choice) const {
  return choice.begun && !choice.text.empty() && choice.reasoning.empty() &&
         choice.tool_calls.empty() && choice.json_events.empty() && choice.token_ids.empty() &&
         choice.finish_reason.is_null() && !request_.logprobs && !request_.return_token_ids &&
         !request_.continuous_usage;
}

void AnswerJson::AppendText(std::string& events, size_t index) {
  std::string& text = choices_[index].text;
  events.reserve(event_head_.size() + 2 * text.size() + 160);
  events += event_head_;
  events += fmt::format(",\"choices\":[{{\"index\":{},{}", index,
                        request_.is_chat ? "\"delta\":{\"content\":" : "\"text\":");
  AppendJson(json::string_view(text), events);
  events += request_.is_chat ? "}," : ",";
  events += "\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}]";
  AppendEnd(events, {});
  text.clear();
}

std::string AnswerJson::Chunks(size_t i, const v1::GenerateResponse& message) {
  const size_t index = Add(i, message);
  Choice& choice = choices_[index];
  // Large enough for a chunk without log-probabilities.
  std::array<unsigned char, 4096> buffer;
  json::monotonic_resource memory(buffer.data(), buffer.size());
  std::string events;
  if (request_.is_chat && !choice.begun) {
    // The role comes in its own chunk, as some clients expect.
    json::array choices(&memory);
    choices.push_back(json::object{{"index", index},
                                   {"delta", FirstDelta()},
                                   {"logprobs", nullptr},
                                   {"finish_reason", nullptr}});
    json::object about_prompt;
    if (request_.return_token_ids) AddPromptFields(prompts_[i], about_prompt);
    AppendEvent(events, choices, std::move(about_prompt));
    choice.begun = true;
  }
  if (!HasNews(choice)) return events;
  if (HasTextAlone(choice)) {
    AppendText(events, index);
    return events;
  }
  const bool first_of_completion = !choice.begun;
  json::array choices(&memory);
  choices.push_back(TakeChoice(index, /*is_delta=*/true, &memory));
  if (first_of_completion && request_.return_token_ids) {
    AddPromptFields(prompts_[i], choices.front().get_object());
  }
  AppendEvent(events, choices);
  return events;
}

std::string AnswerJson::LastChunks() {
  std::string events;
  if (request_.include_usage) AppendEvent(events, {}, {{"usage", Usage()}});
  return events + kEventStart + "[DONE]" + kEventEnd;
}

std::string AnswerJson::FailureChunks(const absl::Status& status) { return ErrorEvents(status); }

void AnswerJson::Collect(size_t i, const v1::GenerateResponse& message) {
  Choice& choice = choices_[Add(i, message)];
  choice.begun = true;
}

std::string AnswerJson::Whole() {
  json::array choices;
  for (size_t index = 0; index < choices_.size(); ++index) {
    choices_[index].begun = false;
    json::object choice = TakeChoice(index, /*is_delta=*/false, {});
    if (request_.is_chat) {
      choice.at("message").as_object().emplace("refusal", nullptr);
    } else {
      AddPromptFields(prompts_[index / request_.n()], choice);
    }
    choices.push_back(std::move(choice));
  }
  json::object whole = Head(id_, request_.is_chat ? "chat.completion" : "text_completion",
                            created_unix_s_, model_name_);
  whole.emplace("choices", std::move(choices));
  whole.emplace("usage", Usage());
  if (request_.is_chat) AddPromptFields(prompts_.front(), whole);
  return JsonText(std::move(whole));
}

void AnswerJson::AddPromptFields(const Prompt& prompt, json::object& target) const {
  if (request_.prompt_logprobs) {
    target.emplace("prompt_logprobs", PromptLogprobs(prompt.content.logprobs()));
  }
  if (request_.return_token_ids) {
    json::array ids;
    Append(ids, prompt.content.token_ids());
    target.emplace("prompt_token_ids", std::move(ids));
  }
}

json::object AnswerJson::Usage() const {
  uint64_t n_prompt = 0;
  v1::Usage cached;
  uint64_t n_completion = 0;
  for (const Prompt& prompt : prompts_) {
    n_prompt += prompt.n_tokens;
    AddCached(prompt.usage, cached);
  }
  uint64_t n_reasoning = 0;
  for (const Choice& choice : choices_) {
    n_completion += choice.n_tokens;
    n_reasoning += choice.n_reasoning_tokens;
  }
  json::object usage = {{"prompt_tokens", n_prompt},
                        {"completion_tokens", n_completion},
                        {"total_tokens", n_prompt + n_completion},
                        {"prompt_tokens_details", CachedJson(cached)}};
  if (request_.is_chat) {
    usage.emplace("completion_tokens_details", json::object{{"reasoning_tokens", n_reasoning}});
  }
  return usage;
}

}  // namespace stagecoach::router::http
