#include "common/text/chat_template.h"

#include "absl/status/status.h"
#include "common/status.h"
#include "common/text/abi_status.h"
#include "common/text/gguf_text.h"

namespace stagecoach::text {

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Load(
    const std::string& model_path, const std::string& override_path) {
  ScTextTemplate* handle = nullptr;
  if (IsGguf(model_path)) {
    SC_ASSIGN_OR_RETURN(handle, LoadGgufTemplate(model_path, override_path));
  } else {
    ErrorBuffer error{};
    const int32_t code = sc_text_template_load(model_path.c_str(), override_path.c_str(), &handle,
                                               error.data(), error.size());
    if (code != 0) return AbiStatus(code, error);
  }
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(handle));
}

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::FromSource(
    std::string_view source) {
  ScTextTemplate* handle = nullptr;
  ErrorBuffer error{};
  const int32_t code =
      sc_text_template_from_source(source.data(), source.size(), /*tool_use=*/{"", 0},
                                   /*roles=*/nullptr, 0, &handle, error.data(), error.size());
  if (code != 0) return AbiStatus(code, error);
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(handle));
}

ChatTemplate::~ChatTemplate() { sc_text_template_free(handle_); }

bool ChatTemplate::Mentions(std::string_view text) const {
  return sc_text_template_mentions(handle_, text.data(), text.size()) != 0;
}

absl::StatusOr<ChatTemplate::Rendered> ChatTemplate::Render(std::string_view messages_json,
                                                            std::string_view tools_json,
                                                            const Options& options) const {
  if (options.continue_final_message && options.add_generation_prompt) {
    return absl::InvalidArgumentError(
        "continue_final_message and add_generation_prompt exclude each other");
  }
  const ScTextRenderOptions abi_options = {
      .add_generation_prompt = options.add_generation_prompt,
      .continue_final_message = options.continue_final_message,
      .kwargs = options.kwargs_json.data(),
      .n_kwargs = options.kwargs_json.size(),
      .now_unix_s = options.now_unix_s.value_or(-1),
  };
  ScTextRendered* handle = nullptr;
  ScTextRenderedView view{};
  ErrorBuffer error{};
  const int32_t code = sc_text_template_render(handle_, messages_json.data(), messages_json.size(),
                                               tools_json.data(), tools_json.size(), &abi_options,
                                               &handle, &view, error.data(), error.size());
  if (code != 0) return AbiStatus(code, error);
  Rendered rendered;
  rendered.text.assign(view.text, view.size);
  rendered.plain.reserve(view.n_plain);
  for (size_t i = 0; i < view.n_plain; ++i) {
    rendered.plain.push_back({view.plain[i].begin, view.plain[i].end});
  }
  if (view.control != nullptr) rendered.control.emplace(view.control, view.n_control);
  sc_text_rendered_free(handle);
  return rendered;
}

}  // namespace stagecoach::text
