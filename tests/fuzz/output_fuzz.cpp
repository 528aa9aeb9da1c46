// Splits a model's output into reasoning, tool calls and JSON events. The result must not depend on
// where the text is cut. The first two bytes select what is parsed.
#include <memory>
#include <string>

#include "common/text/utf8.h"
#include "router/text/output_channels.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace stagecoach;

constexpr const char* kSchema =
    R"({"properties": {"s": {"type": "string"}, "n": {"type": "integer"}, "m": {}}})";

router::OutputFormat Format(uint8_t flags, uint8_t family) {
  router::OutputFormat format;
  format.separate_reasoning = (flags & 1) != 0;
  const bool is_open = (flags & 2) != 0;
  if (is_open) format.reasoning_place = router::ReasoningPlace::kInside;
  constexpr router::ReasoningMarks kMarks[] = {router::kThinkTags, router::kThinkBrackets,
                                               router::kThoughtChannel, router::kKimiThinkTags};
  format.reasoning_marks = kMarks[flags >> 6];
  const bool is_harmony = family % router::kToolFamilies == int(router::ToolFamily::kHarmony);
  if (is_harmony) format.harmony = is_open ? "<|channel|>analysis<|message|>" : "";
  if ((flags & 4) != 0) {
    router::ToolCallParser::Options& tools = format.tools.emplace();
    tools.family = static_cast<router::ToolFamily>(family % router::kToolFamilies);
    static const auto schemas =
        std::make_shared<router::ToolSchemaList>(router::ToolSchemaList{{"f", kSchema}, {"g", ""}});
    tools.tools = schemas;
    tools.parallel = (flags & 8) != 0;
  }
  if ((flags & 16) != 0) {
    const std::vector<std::string> paths = {"/answer", "/*/a", "/0"};
    format.json_events = router::JsonPaths::Parse(paths).value();
    format.json_source = (flags & 32) != 0 ? router::JsonEventParser::Source::kConstrained
                                           : router::JsonEventParser::Source::kPrompted;
  }
  return format;
}

std::string Read(const router::OutputFormat& format, std::string_view text, size_t n_bytes) {
  router::OutputChannels channels(&format, "key");
  v1::GenerateResponse message;
  while (!text.empty()) {
    channels.Push(text.substr(0, n_bytes), &message);
    text.remove_prefix(std::min(n_bytes, text.size()));
  }
  channels.End(&message);
  return message.SerializeAsString();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::string text;
  std::string bytes(fuzz::Text(data + 2, size - 2));
  text::TakeUtf8(bytes, text);  // the detokenizer gives valid UTF-8 only
  const router::OutputFormat format = Format(data[0], data[1]);
  const std::string whole = Read(format, text, text.size());
  for (const size_t n : {1, 2, 7}) {
    if (Read(format, text, n) != whole) {
      std::fprintf(stderr, "cut into pieces of %zu bytes it is another\n", n);
      std::abort();
    }
  }
  return 0;
}
