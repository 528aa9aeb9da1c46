#include "router/text/output_channels.h"

#include <string>
#include <string_view>

#include "catch2/catch_test_macros.hpp"
#include "router/text/tool_call_ids.h"

namespace stagecoach::router {
namespace {

// The output for `text` in pieces of `n` bytes, merged like in the front end.
v1::GenerateResponse Read(const OutputFormat& format, std::string_view text, size_t n = 1) {
  OutputChannels channels(&format, "key");
  v1::GenerateResponse message;
  for (; !text.empty(); text.remove_prefix(std::min(n, text.size()))) {
    channels.Push(text.substr(0, n), &message);
  }
  channels.End(&message);
  CHECK(channels.called_tools() == (message.tool_calls_size() > 0));
  return message;
}

TEST_CASE("plain text stays text") {
  const v1::GenerateResponse message = Read({}, "<think>x</think> <tool_call> {\"a\": 1}");
  CHECK(message.text() == "<think>x</think> <tool_call> {\"a\": 1}");
  CHECK(message.reasoning().empty());
}

TEST_CASE("reasoning, text and tool calls are separated") {
  OutputFormat format{.separate_reasoning = true};
  format.tools = {.family = ToolFamily::kHermes};
  for (const size_t n : {1, 7, 1000}) {
    const v1::GenerateResponse message =
        Read(format,
             "<think>Look it up.</think>\n\nOne moment.\n<tool_call>{\"name\": \"f\", "
             "\"arguments\": {\"a\": 1}}</tool_call><tool_call>{\"name\": \"g\"}</tool_call>",
             n);
    CHECK(message.reasoning() == "Look it up.");
    CHECK(message.text() == "One moment.");
    REQUIRE(message.tool_calls_size() == 2);
    CHECK(message.tool_calls(0).id() == MakeToolCallId(ToolFamily::kHermes, "key/0", "f", 0));
    CHECK(message.tool_calls(0).name() == "f");
    CHECK(message.tool_calls(0).arguments() == "{\"a\": 1}");
    CHECK(message.tool_calls(1).index() == 1);
    CHECK(message.tool_calls(1).arguments() == "{}");
  }
}

TEST_CASE("JSON events replace text and come after the reasoning") {
  OutputFormat format{.separate_reasoning = true, .reasoning_place = ReasoningPlace::kInside};
  const std::vector<std::string> paths = {"/answer"};
  format.json_events = JsonPaths::Parse(paths).value();
  for (const size_t n : {1, 5, 1000}) {
    const v1::GenerateResponse message = Read(
        format, "{\"answer\": 1}</think>```json\n{\"answer\": \"Good morning\", \"x\": 2}\n```", n);
    CHECK(message.reasoning() == "{\"answer\": 1}");
    CHECK(message.text().empty());
    REQUIRE(message.json_events_size() == 1);
    CHECK(message.json_events(0).path() == "/answer");
    CHECK(message.json_events(0).delta() == "Good morning");
  }
}

}  // namespace
}  // namespace stagecoach::router
