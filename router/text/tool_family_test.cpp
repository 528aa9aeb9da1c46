#include "router/text/tool_family.h"

#include <string>
#include <string_view>
#include <utility>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

TEST_CASE("a family is detected from what its templates contain") {
  using enum ToolFamily;
  constexpr std::pair<std::string_view, ToolFamily> kTemplates[] = {
      {"[TOOL_CALLS][{\"name\":", kMistral},
      {"[TOOL_CALLS]f[CALL_ID]id[ARGS]", kMistralArgs},
      {"[TOOL_CALLS]f[ARGS]", kMistralArgs},
      {"<tool_call>\n{\"name\": ", kHermes},
      {"<tool_call>\n<function=f>\n<parameter=a>", kQwenXml},
      {"<tool_call>f\n<arg_key>", kGlm},
      {"<seed:tool_call>\n<function=f>\n<parameter=a>", kSeed},
      {"<minimax:tool_call>\n<invoke", kMiniMax},
      {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", kDeepSeek},
      {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json",
       kDeepSeekFenced},
      {"<|tool_calls_section_begin|><|tool_call_begin|>", kKimi},
      {"<TOOLCALL>[{\"name\": ", kNemotron},
      {"<|tool_call>call:", kGemma},
      {"<|start|>assistant<|channel|>", kHarmony},
      {"[func_name1(a=1)]", kPythonic},
      {"{\"name\": \"f\", \"parameters\": {}}", kJson},
      {"", kJson}};
  for (const auto& [source, family] : kTemplates) {
    INFO(source);
    const auto chat_template =
        text::ChatTemplate::FromSource("{% raw %}" + std::string(source) + "{% endraw %}");
    REQUIRE(chat_template.ok());
    CHECK(DetectToolFamily(**chat_template) == family);
  }
}

}  // namespace
}  // namespace stagecoach::router
