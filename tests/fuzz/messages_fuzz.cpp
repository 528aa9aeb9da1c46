// A request's messages and tools, with a zero byte between them, in a template that uses all of
// their fields.
#include <algorithm>
#include <cstdlib>

#include "common/text/chat_template.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr const char* kTemplate = R"({%- if tools %}{{ tools | tojson(indent=2) }}{% endif -%}
{%- for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ m['content'] | trim }}
{%- elif m.content %}{% for part in m.content %}{{ part.text | upper }}{{ part }}{% endfor %}
{%- else %}{{ m.tool_calls | tojson }}{% endif %}{{ m.get('name', '') ~ loop.index }}<|end|>{% endfor %})";

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  static const auto chat = text::ChatTemplate::FromSource(kTemplate);
  if (!chat.ok()) std::abort();
  const std::string_view input = fuzz::Text(data, size);
  const size_t zero = std::min(input.find('\0'), size);
  const std::string_view messages = input.substr(0, zero);
  const std::string_view tools = input.substr(std::min(zero + 1, size));
  for (const bool go_on : {false, true}) {
    text::ChatTemplate::Options options;
    options.add_generation_prompt = !go_on;
    options.continue_final_message = go_on;
    const auto rendered = (*chat)->Render(messages, tools, options);
    fuzz::Accept(rendered.status());
    if (!rendered.ok()) continue;
    for (const text::TextRange& range : rendered->plain) {
      if (range.begin > range.end || range.end > rendered->text.size()) std::abort();
    }
  }
  return 0;
}
