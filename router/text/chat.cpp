#include "router/text/chat.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "common/status.h"
#include "common/text/utf8.h"

namespace stagecoach::router {
namespace {

absl::Status CheckMessage(int i, const v1::ChatMessage& message) {
  const auto bad = [i](std::string_view field, std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("messages[{}].{}: {}", i, field, what));
  };
  if (message.role().empty()) return bad("role", "is empty");
  if (!text::IsUtf8(message.role())) return bad("role", "is not valid UTF-8");
  if (!text::IsUtf8(message.content())) return bad("content", "is not valid UTF-8");
  return absl::OkStatus();
}

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
        "continue_final_message: excludes add_generation_prompt, as the answer would begin anew");
  }
  options.kwargs_json = request.chat_template_kwargs();
  if (!options.kwargs_json.empty()) {
    boost::system::error_code error;
    const boost::json::value kwargs = boost::json::parse(options.kwargs_json, error);
    if (error || !kwargs.is_object()) {
      return absl::InvalidArgumentError("chat_template_kwargs: is not a JSON object");
    }
  }
  return options;
}

}  // namespace

absl::StatusOr<ChatPrompt> RenderChat(const ServedModel& model, const v1::ChatRequest& request) {
  if (model.chat_template == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("messages: {} has no chat template; use Generate, or start the server with "
                    "--chat-template FILE",
                    model.name));
  }
  if (request.messages().empty()) return absl::InvalidArgumentError("messages: is empty");
  boost::json::array messages;
  for (int i = 0; i < request.messages_size(); ++i) {
    const v1::ChatMessage& message = request.messages(i);
    SC_RETURN_IF_ERROR(CheckMessage(i, message));
    messages.push_back({{"role", message.role()}, {"content", message.content()}});
  }
  SC_ASSIGN_OR_RETURN(const text::ChatTemplate::Options options, RenderOptions(request));
  auto rendered = model.chat_template->Render(boost::json::serialize(messages), "", options);
  if (!rendered.ok()) return WithField(rendered.status(), "messages");
  auto ids = model.tokenizer->EncodeRendered(*rendered);
  if (!ids.ok()) return WithField(ids.status(), "messages");
  SC_RETURN_IF_ERROR(CheckIds(model, *ids, "messages, as tokens"));
  return ChatPrompt{.text = std::move(rendered->text), .ids = *std::move(ids)};
}

}  // namespace stagecoach::router
