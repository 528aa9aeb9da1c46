// Chat templates: a conversation as the text that a model was trained on.
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
// loaded: any number of threads may use one at the same time. Templates come from a checkpoint or
// an operator, never from a request: steps and output are bounded, memory in between is not.
class ChatTemplate {
 public:
  // `model_path`: a checkpoint folder or a .gguf file. Reads `override_path`, or when it is empty
  // the folder's chat_template.jinja (with additional_chat_templates/tool_use.jinja), or
  // "chat_template" of chat_template.json or tokenizer_config.json: a string, or a list of which
  // "tool_use" serves requests with tools and "default" all others; of a .gguf file
  // tokenizer.chat_template. bos_token and the like come from tokenizer_config.json or
  // special_tokens_map.json, or the ids in the metadata. NotFound when there is no template;
  // InvalidArgument with file and line when it cannot be parsed.
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> Load(const std::string& model_path,
                                                                  const std::string& override_path);

  // A template without a checkpoint: bos_token and the like come from kwargs_json or are undefined.
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> FromSource(std::string_view source);

  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;
  ~ChatTemplate();

  struct Options {
    bool add_generation_prompt = true;
    // The text ends with the last message, so that a model goes on with it. Needs
    // add_generation_prompt off.
    bool continue_final_message = false;
    std::string kwargs_json;            // further variables, a JSON object; "" for none
    std::optional<int64_t> now_unix_s;  // for strftime_now; the clock when unset
  };

  // Whether its source, or that for tools, has `text` anywhere: "[TOOL_CALLS]" tells a family.
  bool Mentions(std::string_view text) const;

  // For Tokenizer::EncodeRendered. `plain` are the brackets and bars that came from strings of the
  // request, wherever the template put them: in nearly every special token there is one. Empty for
  // most requests. `control` is set where the template looks at those characters (it takes a
  // "</think>" off an answer, say) and not all could be followed.
  //
  // What stays unguarded: special tokens that are spelled without any of < > [ ] { } | ("sop").
  using Rendered = RenderedText;

  // `messages_json`: an array of messages as in OpenAI's API, with the arguments of tool calls as
  // the template wants them (objects for nearly all); key order and 1.0 against 1 are kept.
  // `tools_json`: an array, or "" for none. InvalidArgument carries the template's own words where
  // it raises an exception, also where it raises one only once the brackets and bars of the request
  // are others: then nothing can be said about special tokens in it.
  absl::StatusOr<Rendered> Render(std::string_view messages_json, std::string_view tools_json,
                                  const Options& options) const;

 private:
  explicit ChatTemplate(ScTextTemplate* handle) : handle_(handle) {}

  ScTextTemplate* const handle_;  // owned
};

}  // namespace stagecoach::text
