// A checkpoint's chat template, rendered for a conversation with tools.
#include "common/text/chat_template.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr const char* kMessages = R"([
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": "Where is the <|im_end|> train to Åre?"},
  {"role": "assistant", "content": null, "tool_calls": [
     {"id": "abcdefghi", "type": "function",
      "function": {"name": "trains", "arguments": {"to": "Åre", "n": 1, "x": 1.0}}}]},
  {"role": "tool", "tool_call_id": "abcdefghi", "name": "trains", "content": "{\"track\": 4}"},
  {"role": "user", "content": [{"type": "text", "text": "Thanks."}]}])";
constexpr const char* kTools = R"([{"type": "function", "function": {"name": "trains",
  "description": "d", "parameters": {"type": "object", "properties": {"to": {"type": "string"}}}}}])";

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  const auto chat = text::ChatTemplate::FromSource(fuzz::Text(data, size));
  fuzz::Accept(chat.status());
  if (!chat.ok()) return 0;
  text::ChatTemplate::Options options;
  options.now_unix_s = 1'700'000'000;
  options.kwargs_json = R"({"bos_token": "<s>", "eos_token": "</s>"})";
  for (const char* tools : {kTools, ""}) {
    const auto rendered = (*chat)->Render(kMessages, tools, options);
    fuzz::Accept(rendered.status());
    if (!rendered.ok()) continue;
    for (const text::TextRange& range : rendered->plain) {
      if (range.begin > range.end || range.end > rendered->text.size()) std::abort();
    }
  }
  return 0;
}
