#include "router/text/chat.h"

#include <fmt/format.h>

#include <utility>

#include "common/status.h"
#include "router/text/chat_messages.h"
#include "router/text/client_json.h"
#include "router/text/text_memory.h"

namespace stagecoach::router {
namespace {

absl::Status WithField(const absl::Status& status, std::string_view field) {
  return absl::Status(status.code(), fmt::format("{}: {}", field, std::string(status.message())));
}

absl::StatusOr<text::ChatTemplate::Options> RenderOptions(const v1::ChatRequest& request) {
  text::ChatTemplate::Options options;
  options.continue_final_message = request.continue_final_message();
  options.add_generation_prompt = request.has_add_generation_prompt()
                                      ? request.add_generation_prompt()
                                      : !request.continue_final_message();
  if (options.continue_final_message && options.add_generation_prompt) {
    return absl::InvalidArgumentError(
        "continue_final_message: cannot be combined with add_generation_prompt, which begins a new "
        "message");
  }
  options.kwargs_json = request.chat_template_kwargs();
  if (!options.kwargs_json.empty()) {
    boost::system::error_code error;
    const boost::json::value kwargs = ParseClientJson(options.kwargs_json, error);
    if (error || !kwargs.is_object()) {
      return absl::InvalidArgumentError("chat_template_kwargs: must be a JSON object");
    }
  }
  return options;
}

// Gives the template the tools under SmolLM3's name for them, which does not read `tools`, unless
// the request itself has a variable with tools.
void AddXmlTools(const std::string& tools, std::string& kwargs_json) {
  std::string rest = "}";
  if (!kwargs_json.empty()) {
    boost::system::error_code error;
    const boost::json::value kwargs = ParseClientJson(kwargs_json, error);
    if (error || kwargs.as_object().contains("xml_tools") ||
        kwargs.as_object().contains("python_tools")) {
      return;
    }
    // As written: parsing would change numbers.
    rest = (kwargs.as_object().empty() ? "" : ", ") + kwargs_json.substr(kwargs_json.find('{') + 1);
  }
  kwargs_json = fmt::format("{{\"xml_tools\": {}{}", tools, rest);
}

// The tools that the template receives.
absl::StatusOr<std::vector<ToolSpec>> OfferedTools(const ServedModel& model,
                                                   const v1::ChatRequest& request) {
  std::vector<ToolSpec> tools;
  if (!request.tools().empty()) {
    SC_ASSIGN_OR_RETURN(tools, ParseTools(request.tools()));
  }
  if (request.tool_choice().mode() == v1::ToolChoice::NONE) tools.clear();
  if (!tools.empty() && !model.chat_template->Mentions("tools")) {
    return absl::InvalidArgumentError(
        fmt::format("tools: the chat template of {} does not support tools", model.name));
  }
  return tools;
}

absl::StatusOr<text::ChatTemplate::Rendered> Render(const ServedModel& model,
                                                    const v1::ChatRequest& request,
                                                    ToolFamily family, const std::string& tools,
                                                    const text::ChatTemplate::Options& options) {
  // Newer templates of Mistral read reasoning_content, and refuse reasoning that is given twice.
  const MessageForm form{.family = family,
                         .reasoning_is_part = model.chat_template->Mentions(kThinkBrackets.end) &&
                                              !model.chat_template->Mentions("reasoning_content")};
  SC_ASSIGN_OR_RETURN(const MessagesForTemplate messages, MessagesJson(request, form));
  auto rendered = model.chat_template->Render(messages.json, tools, options);
  if (!rendered.ok() && messages.has_odd_values) {
    // A template that iterates over the arguments' members cannot read a string, and one that takes
    // a content apart cannot read null.
    SC_ASSIGN_OR_RETURN(const MessagesForTemplate again,
                        MessagesJson(request, form, OddValues::kReplaced));
    auto rendered_again = model.chat_template->Render(again.json, tools, options);
    if (rendered_again.ok()) rendered = std::move(rendered_again);
  }
  if (!rendered.ok()) return WithField(rendered.status(), "messages");
  return rendered;
}

// The same request, except that system messages after the first message are the user's. Absent:
// there are none.
std::optional<v1::ChatRequest> WithoutLateSystem(const v1::ChatRequest& request) {
  std::optional<v1::ChatRequest> other;
  for (int i = 1; i < request.messages_size(); ++i) {
    if (request.messages(i).role() != "system") continue;
    if (!other) other = request;
    other->mutable_messages(i)->set_role("user");
  }
  return other;
}

}  // namespace

absl::StatusOr<ChatPrompt> RenderChat(const ServedModel& model, const v1::ChatRequest& request,
                                      std::optional<int64_t> unix_s) {
  if (model.chat_template == nullptr) {
    return absl::InvalidArgumentError(fmt::format(
        "messages: {} has no chat template; use /v1/completions, or Generate over gRPC, "
        "or start the server with --chat-template FILE",
        model.name));
  }
  SC_ASSIGN_OR_RETURN(const TextMemory memory,
                      TextMemory::Reserve(model, "messages", request.ByteSizeLong()));
  ChatPrompt prompt{.family = DetectToolFamily(*model.chat_template)};
  SC_ASSIGN_OR_RETURN(prompt.tools, OfferedTools(model, request));
  SC_ASSIGN_OR_RETURN(text::ChatTemplate::Options options, RenderOptions(request));
  options.now_unix_s = unix_s;
  const std::string tools =
      prompt.tools.empty() ? std::string() : WithoutDeferred(request.tools(), prompt.tools);
  if (!tools.empty() && model.chat_template->Mentions("xml_tools")) {
    AddXmlTools(tools, options.kwargs_json);
  }
  auto rendered = Render(model, request, prompt.family, tools, options);
  if (!rendered.ok()) {
    // Agents send system messages in the middle; some templates take them only in front.
    if (const auto other = WithoutLateSystem(request)) {
      auto rendered_again = Render(model, *other, prompt.family, tools, options);
      if (rendered_again.ok()) rendered = std::move(rendered_again);
    }
  }
  if (!rendered.ok()) return rendered.status();
  SC_RETURN_IF_ERROR(CheckTextLength(model, "messages", rendered->text.size()));
  auto ids = model.tokenizer->EncodeRendered(*rendered);
  if (!ids.ok()) return WithField(ids.status(), "messages");
  SC_RETURN_IF_ERROR(CheckIds(model, *ids, "messages, as tokens"));
  prompt.text = std::move(rendered->text);
  prompt.ids = *std::move(ids);
  return prompt;
}

}  // namespace stagecoach::router
