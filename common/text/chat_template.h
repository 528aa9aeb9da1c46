// Chat templates: turn a conversation into the text format that a model was trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/text_abi.h"
#include "common/text/tokenizer.h"

namespace stagecoach::text {

// A checkpoint's Jinja template, rendered as Hugging Face transformers renders it. Immutable once
// loaded: any number of threads may use one object at the same time. Templates must come from a
// checkpoint or an operator, never from a request: steps and output size are bounded, but
// intermediate memory is not.
class ChatTemplate {
 public:
  // `model_path`: a checkpoint folder or a .gguf file. Reads `override_path` if it is not empty.
  // Otherwise reads from a folder chat_template.jinja (with
  // additional_chat_templates/tool_use.jinja), or "chat_template" of chat_template.json or
  // tokenizer_config.json: a string, or a list in which "tool_use" serves requests with tools and
  // "default" all others. Reads tokenizer.chat_template from a .gguf file. bos_token and similar
  // roles come from tokenizer_config.json or special_tokens_map.json, or from the ids in the
  // metadata. NotFound if there is no template; InvalidArgument with file and line if it cannot be
  // parsed.
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> Load(const std::string& model_path,
                                                                  const std::string& override_path);

  // A template without a checkpoint. bos_token and similar roles come from kwargs_json or are
  // undefined.
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> FromSource(std::string_view source);

  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;
  ~ChatTemplate();

  struct Options {
    bool add_generation_prompt = true;
    // The text ends with the last message, so that the model continues it. Requires
    // add_generation_prompt to be off.
    bool continue_final_message = false;
    std::string kwargs_json;            // further variables, a JSON object; "": none
    std::optional<int64_t> now_unix_s;  // for strftime_now; unset: the system clock
  };

  // Whether the template's source, or that of the template for tools, contains `text`. For example,
  // "[TOOL_CALLS]" identifies a model family.
  bool Mentions(std::string_view text) const;

  // Input for Tokenizer::EncodeRendered. `plain` marks the brackets and bars that came from strings
  // of the request, wherever the template put them; nearly every special token contains one of
  // these characters. Empty for most requests. `control` is set if the template looks at those
  // characters (for example, it removes "</think>" from an answer) and not all of them could be
  // followed.
  //
  // Not protected: special tokens spelled without any of < > [ ] { } | (such as "sop").
  using Rendered = RenderedText;

  // `messages_json`: an array of messages in the format of OpenAI's API. The arguments of tool
  // calls must have the form that the template expects (an object for nearly all templates). Key
  // order and the difference between 1.0 and 1 are kept. `tools_json`: an array, or "" for none. If
  // the template raises an exception, InvalidArgument has the template's own message. This includes
  // an exception raised only when the brackets and bars of the request are replaced, because then
  // special tokens in the request cannot be recognized.
  absl::StatusOr<Rendered> Render(std::string_view messages_json, std::string_view tools_json,
                                  const Options& options) const;

 private:
  explicit ChatTemplate(ScTextTemplate* handle) : handle_(handle) {}

  ScTextTemplate* const handle_;  // owned
};

}  // namespace stagecoach::text
