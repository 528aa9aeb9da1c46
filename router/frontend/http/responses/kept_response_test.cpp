#include "router/frontend/http/responses/kept_response.h"

#include <boost/json.hpp>
#include <string>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

v1::ChatMessage& Add(KeptResponse& kept, const std::string& role, const std::string& text) {
  v1::ChatMessage& message = *kept.conversation.add_messages();
  message.set_role(role);
  message.set_content(text);
  return message;
}

TEST_CASE("the input of a response as items, page by page") {
  KeptResponse kept;
  Add(kept, "user", "Hi");
  v1::ChatMessage& said = Add(kept, "assistant", "Wait.");
  said.set_reasoning("Hm.");
  v1::ToolCall& call = *said.add_tool_calls();
  call.set_id("1");
  call.set_name("f");
  call.set_arguments("{}");
  Add(kept, "tool", "one").set_tool_call_id("1");
  Add(kept, "assistant", "the answer");
  const auto page = [&](const std::string& query) {
    const auto text = InputItemsJson(kept, query);
    INFO(text.status().message());
    REQUIRE(text.ok());
    return json::parse(*text);
  };
  const json::value all = page("order=asc");
  CHECK(all.at("data") == json::parse(R"([
      {"type": "message", "role": "user", "id": "msg_0", "status": "completed",
       "content": [{"type": "input_text", "text": "Hi"}]},
      {"type": "reasoning", "summary": [], "id": "rs_1", "status": "completed",
       "content": [{"type": "reasoning_text", "text": "Hm."}]},
      {"type": "message", "role": "assistant", "id": "msg_2", "status": "completed",
       "content": [{"type": "output_text", "text": "Wait.", "annotations": []}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "id": "fc_3",
       "status": "completed"},
      {"type": "function_call_output", "call_id": "1", "output": "one", "id": "fco_4",
       "status": "completed"}])"));
  CHECK(all.at("has_more") == false);
  const json::value first = page("limit=2");
  CHECK(first.at("first_id") == "fco_4");
  CHECK(first.at("last_id") == "fc_3");
  CHECK(first.at("has_more") == true);
  const json::value rest = page("limit=3&after=fc_3");
  CHECK(rest.at("data").as_array().size() == 3);
  CHECK(rest.at("last_id") == "msg_0");
  CHECK(rest.at("has_more") == false);
  CHECK(page("after=msg_0").at("last_id").is_null());
  for (const char* wrong : {"limit=0", "limit=x", "limit=101", "after=other"}) {
    CHECK(absl::IsInvalidArgument(InputItemsJson(kept, wrong).status()));
  }
}

}  // namespace
}  // namespace stagecoach::router::http
