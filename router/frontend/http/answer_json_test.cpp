#include "router/frontend/http/answer_json.h"

#include "catch2/catch_test_macros.hpp"
#include "router/text/testing/test_model.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

// The data of each event.
std::vector<std::string> Events(const std::string& text) {
  std::vector<std::string> events;
  size_t at = 0;
  while (at < text.size()) {
    REQUIRE(text.compare(at, 6, "data: ") == 0);
    const size_t end = text.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    events.push_back(text.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}

void AddLogprob(v1::PositionLogprobs& position, int32_t id, const std::string& bytes, float value) {
  position.mutable_chosen()->set_token_id(id);
  position.mutable_chosen()->set_token(bytes);
  position.mutable_chosen()->set_logprob(value);
  v1::TokenLogprob& top = *position.add_top();
  top.set_token_id(9);
  top.set_token("z");
  top.set_logprob(-0.25f);
}

v1::GenerateResponse Message(const std::string& text, std::vector<int32_t> ids) {
  v1::GenerateResponse message;
  message.set_text(text);
  message.mutable_token_ids()->Add(ids.begin(), ids.end());
  return message;
}

v1::GenerateResponse First(v1::GenerateResponse message) {
  message.mutable_prompt()->add_token_ids(70);
  message.mutable_prompt()->add_token_ids(71);
  message.mutable_prompt()->set_text("ab");
  return message;
}

v1::GenerateResponse Last(v1::GenerateResponse message, v1::FinishReason reason,
                          const std::string& stop_reason = "") {
  message.set_finish_reason(reason);
  message.set_stop_reason(stop_reason);
  message.mutable_usage()->set_prompt_tokens(2);
  return message;
}

ApiRequest Chat(const std::string& fields) {
  auto request =
      ParseChatRequest(R"({"messages": [{"role": "user", "content": "x"}])" + fields + "}");
  REQUIRE(request.ok());
  return *std::move(request);
}

ApiRequest Completion(const std::string& fields) {
  auto request = ParseCompletionRequest("{" + fields + "}");
  REQUIRE(request.ok());
  return *std::move(request);
}

TEST_CASE("chat chunks: role, text, end, usage, done") {
  const ServedModel model = TestModel();
  const ApiRequest request = Chat(R"(, "stream": true, "stream_options": {"include_usage": true})");
  AnswerJson answer(request, model, "id", 1700000000);
  std::string text = answer.Chunks(0, First(Message("Hä\"", {5})));
  CHECK(answer.Chunks(0, Message("", {6})).empty());  // no whole UTF-8 character yet
  text += answer.Chunks(0, Last(Message("llo", {7, 1}), v1::FINISH_REASON_STOP, "1"));
  text += answer.LastChunks();
  const auto events = Events(text);
  REQUIRE(events.size() == 5);
  CHECK(events[4] == "[DONE]");
  CHECK(events[0] ==
        R"({"id":"chatcmpl-id","object":"chat.completion.chunk","created":1700000000,)"
        R"("model":"test-model","choices":[{"index":0,"delta":{"role":"assistant","content":""},)"
        R"("logprobs":null,"finish_reason":null}],"usage":null})");
  const json::value second = json::parse(events[1]);
  CHECK(second.at("choices").at(0).at("delta") == json::value{{"content", "Hä\""}});
  CHECK(second.at("choices").at(0).at("finish_reason").is_null());
  const json::value third = json::parse(events[2]);
  CHECK(third.at("choices").at(0).at("delta").at("content") == "llo");
  CHECK(third.at("choices").at(0).at("finish_reason") == "stop");
  CHECK(third.at("choices").at(0).at("stop_reason").is_null());
  const json::value usage = json::parse(events[3]);
  CHECK(usage.at("choices").as_array().empty());
  CHECK(usage.at("usage") ==
        json::parse(R"({"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6,
                        "prompt_tokens_details": {"cached_tokens": 0},
                        "completion_tokens_details": {"reasoning_tokens": 0}})"));
}

TEST_CASE("cached tokens of all prompts are added up, those of lower tiers by tier") {
  const ServedModel model = TestModel();
  const ApiRequest request = Completion(R"("prompt": ["a", "b"])");
  AnswerJson answer(request, model, "id", 1700000000);
  for (const uint32_t i : {0u, 1u}) {
    v1::GenerateResponse message = Last(First(Message("x", {5})), v1::FINISH_REASON_STOP);
    message.mutable_usage()->set_cached_tokens(48 * i);
    message.mutable_usage()->mutable_stored_tokens()->set_disk(32 * i);
    answer.Collect(i, message);
  }
  const json::value whole = json::parse(answer.Whole());
  CHECK(whole.at("usage").at("prompt_tokens_details") ==
        json::parse(
            R"({"cached_tokens": 48, "stored_tokens": {"host": 0, "disk": 32, "store": 0}})"));
}

TEST_CASE("a chunk with only text has the same form as other chunks") {
  const ServedModel model = TestModel();
  const std::string usage = R"(, "stream": true, "stream_options": {"include_usage": true})";
  const std::string with_ids = usage + R"(, "return_token_ids": true)";
  const auto second = [&](const ApiRequest& request) {
    AnswerJson answer(request, model, "id", 1700000000);
    v1::GenerateResponse message = Message("H\xc3\xa4\"\n\x01\xf0\x9f\x98\x80\\/", {5});
    message.set_index(1);
    answer.Chunks(0, First(message));
    return Events(answer.Chunks(0, message)).at(0);
  };
  const auto check = [](const std::string& alone, std::string other) {
    const std::string ids = R"(,"token_ids":[5])";
    REQUIRE(other.find(ids) != std::string::npos);
    other.erase(other.find(ids), ids.size());
    CHECK(alone == other);
  };
  check(second(Chat(usage + R"(, "n": 2)")), second(Chat(with_ids + R"(, "n": 2)")));
  const std::string prompt = R"("prompt": "x", "n": 2)";
  check(second(Completion(prompt + usage)), second(Completion(prompt + with_ids)));
}

TEST_CASE("usage reports the number of reasoning tokens") {
  const ServedModel model = TestModel();
  const ApiRequest request = Chat(
      R"(, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true})");
  AnswerJson answer(request, model, "id", 0);
  v1::GenerateResponse thinking = First(Message("", {5, 6}));
  thinking.set_reasoning("hm");
  thinking.set_reasoning_tokens(2);
  const auto reasoning_tokens = [](const std::string& event) {
    return json::parse(event)
        .at("usage")
        .at("completion_tokens_details")
        .at("reasoning_tokens")
        .to_number<int>();
  };
  CHECK(reasoning_tokens(Events(answer.Chunks(0, thinking)).back()) == 2);
  v1::GenerateResponse last = Message("x", {7, 8});
  last.set_reasoning_tokens(1);
  answer.Chunks(0, last);
  CHECK(reasoning_tokens(Events(answer.LastChunks()).front()) == 3);

  const ApiRequest unary = Chat("");
  AnswerJson whole(unary, model, "id", 0);
  whole.Collect(0, thinking);
  whole.Collect(0, last);
  CHECK(reasoning_tokens(whole.Whole()) == 3);
}

TEST_CASE("chunks have no usage by default, and all have it with continuous_usage_stats") {
  const ServedModel model = TestModel();
  const ApiRequest silent = Chat(R"(, "stream": true)");
  AnswerJson plain(silent, model, "id", 1);
  CHECK(plain.Chunks(0, First(Message("a", {5}))).find("usage") == std::string::npos);
  CHECK(plain.LastChunks() == "data: [DONE]\n\n");
  const ApiRequest request =
      Chat(R"(, "stream": true, "stream_options": {"continuous_usage_stats": true})");
  AnswerJson answer(request, model, "id", 1);
  const auto events = Events(answer.Chunks(0, First(Message("a", {5}))));
  CHECK(json::parse(events.at(1)).at("usage").at("total_tokens") == 3);
}

TEST_CASE("chat logprobs: token, bytes and the most likely ones") {
  const ServedModel model = TestModel();
  const ApiRequest request = Chat(R"(, "logprobs": true, "top_logprobs": 1)");
  AnswerJson answer(request, model, "id", 1);
  v1::GenerateResponse message = First(Message("", {5}));
  AddLogprob(*message.add_logprobs(), 5, "\xC3", -INFINITY);
  answer.Collect(0, message);
  answer.Collect(0, Last(Message("ä", {6}), v1::FINISH_REASON_LENGTH));
  const json::value whole = json::parse(answer.Whole());
  CHECK(whole.at("object") == "chat.completion");
  const json::value& choice = whole.at("choices").at(0);
  CHECK(choice.at("message") ==
        json::value{{"role", "assistant"}, {"content", "ä"}, {"refusal", nullptr}});
  CHECK(choice.at("finish_reason") == "length");
  CHECK(choice.at("logprobs").at("content").at(0) == json::parse(R"({"token": "\ufffd",
    "logprob": -9999.0, "bytes": [195],
    "top_logprobs": [{"token": "z", "logprob": -0.25, "bytes": [122]}]})"));
}

TEST_CASE("completion logprobs: parallel arrays over echo and answer, offsets in characters") {
  const ServedModel model = TestModel();
  const ApiRequest request = Completion(
      R"("prompt": "ab", "echo": true, "logprobs": 1, "n": 2, "return_token_ids": true)");
  AnswerJson answer(request, model, "id", 1);
  v1::GenerateResponse first = First(Message("ä", {5}));
  AddLogprob(*first.mutable_prompt()->add_logprobs(), 71, "b", -1);
  AddLogprob(*first.add_logprobs(), 5, "\xC3\xA4", -2);
  answer.Collect(0, first);
  v1::GenerateResponse second = Message("c", {6});
  second.set_index(1);
  AddLogprob(*second.add_logprobs(), 6, "c", -3);
  answer.Collect(0, Last(second, v1::FINISH_REASON_LENGTH));
  v1::GenerateResponse last = Message("!", {7});
  AddLogprob(*last.add_logprobs(), 7, "!", -4);
  answer.Collect(0, Last(last, v1::FINISH_REASON_STOP));
  const json::value whole = json::parse(answer.Whole());
  const std::string token0(model.tokenizer->TokenBytes(70));
  const json::value& choice = whole.at("choices").at(0);
  CHECK(choice.at("text") == "abä!");
  CHECK(choice.at("token_ids") == json::value{5, 7});
  CHECK(choice.at("prompt_token_ids") == json::value{70, 71});
  const json::value& logprobs = choice.at("logprobs");
  CHECK(logprobs.at("tokens") == json::value{token0, "b", "ä", "!"});
  CHECK(logprobs.at("token_logprobs") == json::value{nullptr, -1.0, -2.0, -4.0});
  CHECK(logprobs.at("top_logprobs").at(0).is_null());
  CHECK(logprobs.at("top_logprobs").at(1) == json::value{{"z", -0.25}, {"b", -1.0}});
  const int64_t n = static_cast<int64_t>(token0.size());
  CHECK(logprobs.at("text_offset") == json::value{0, n, n + 1, n + 2});
  CHECK(whole.at("choices").at(1).at("text") == "abc");
  CHECK(whole.at("choices").at(1).at("logprobs").at("tokens").at(2) == "c");
  CHECK(whole.at("usage").at("completion_tokens") == 3);
}

TEST_CASE("max_tokens 0 returns only the prompt, nothing about the generated token") {
  const ServedModel model = TestModel();
  const ApiRequest request = Completion(R"("prompt": "ab", "echo": true, "max_tokens": 0)");
  AnswerJson answer(request, model, "id", 1);
  answer.Collect(0, Last(First(Message("x", {5})), v1::FINISH_REASON_LENGTH));
  const json::value whole = json::parse(answer.Whole());
  CHECK(whole.at("choices").at(0).at("text") == "ab");
  CHECK(whole.at("choices").at(0).at("logprobs").is_null());
  CHECK(whole.at("usage").at("completion_tokens") == 0);
}

TEST_CASE("choices are numbered across all prompts of a request") {
  const ServedModel model = TestModel();
  const ApiRequest request = Completion(R"("prompt": ["a", "b"], "n": 2, "stream": true)");
  AnswerJson answer(request, model, "id", 1);
  v1::GenerateResponse message = First(Message("x", {5}));
  message.set_index(1);
  CHECK(json::parse(Events(answer.Chunks(1, message)).at(0)).at("choices").at(0).at("index") == 3);
}

TEST_CASE("prompt_logprobs are a separate field, keyed by token id") {
  const ServedModel model = TestModel();
  const ApiRequest request = Chat(R"(, "prompt_logprobs": 1)");
  AnswerJson answer(request, model, "id", 1);
  v1::GenerateResponse message = First(Message("x", {5}));
  AddLogprob(*message.mutable_prompt()->add_logprobs(), 71, "b", -1);
  answer.Collect(0, Last(message, v1::FINISH_REASON_STOP));
  CHECK(json::parse(answer.Whole()).at("prompt_logprobs") == json::parse(R"([null, {
    "9": {"logprob": -0.25, "rank": 1, "decoded_token": "z"},
    "71": {"logprob": -1.0, "rank": null, "decoded_token": "b"}}])"));
}

TEST_CASE("stop_reason is the client's stop string or token id, never EOS") {
  const ServedModel model = TestModel();
  const auto reason = [&](const char* stop_reason) {
    const ApiRequest request = Chat(R"(, "stop": ["5", "end"], "stop_token_ids": [7])");
    AnswerJson answer(request, model, "id", 1);
    answer.Collect(0, Last(First(Message("x", {5})), v1::FINISH_REASON_STOP, stop_reason));
    return json::parse(answer.Whole()).at("choices").at(0).at("stop_reason");
  };
  CHECK(reason("end") == "end");
  CHECK(reason("5") == "5");
  CHECK(reason("7") == 7);
  CHECK(reason("1").is_null());
}

void AddCall(v1::GenerateResponse& message, uint32_t index, const std::string& name,
             const std::string& arguments) {
  v1::ToolCallDelta& delta = *message.add_tool_calls();
  delta.set_index(index);
  if (!name.empty()) delta.set_id("id-" + name);
  delta.set_name(name);
  delta.set_arguments(arguments);
}

// Messages with a text, a tool call in two pieces, and another tool call.
std::vector<v1::GenerateResponse> CallingMessages() {
  std::vector<v1::GenerateResponse> messages = {First(Message("", {5})), Message("", {6}),
                                                Message("", {7})};
  messages[0].set_reasoning("Hm");
  AddCall(messages[1], 0, "f", "{\"a\"");
  AddCall(messages[2], 0, "", ": 1}");
  AddCall(messages[2], 1, "g", "{}");
  messages.push_back(Last(Message("", {8}), v1::FINISH_REASON_TOOL_CALLS));
  return messages;
}

TEST_CASE("streamed tool calls and reasoning: id and name once, arguments in pieces") {
  const ServedModel model = TestModel();
  const ApiRequest request = Chat(R"(, "stream": true)");
  AnswerJson answer(request, model, "id", 1);
  std::string text;
  for (const v1::GenerateResponse& message : CallingMessages()) text += answer.Chunks(0, message);
  std::vector<json::value> deltas;
  for (const std::string& event : Events(text)) {
    deltas.push_back(json::parse(event).at("choices").at(0).at("delta"));
  }
  REQUIRE(deltas.size() == 5);
  CHECK(deltas[1] == json::parse(R"({"reasoning_content": "Hm"})"));
  CHECK(deltas[2] == json::parse(R"({"tool_calls": [{"index": 0, "id": "id-f", "type": "function",
    "function": {"name": "f", "arguments": "{\"a\""}}]})"));
  CHECK(deltas[3] == json::parse(R"({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}},
    {"index": 1, "id": "id-g", "type": "function", "function": {"name": "g", "arguments": "{}"}}]})"));
  const json::value last = json::parse(Events(text).back()).at("choices").at(0);
  CHECK(last.at("finish_reason") == "tool_calls");
}

TEST_CASE("tool calls and reasoning in a whole answer") {
  const ServedModel model = TestModel();
  const ApiRequest request = Chat("");
  AnswerJson answer(request, model, "id", 1);
  for (const v1::GenerateResponse& message : CallingMessages()) answer.Collect(0, message);
  const json::value choice = json::parse(answer.Whole()).at("choices").at(0);
  CHECK(choice.at("finish_reason") == "tool_calls");
  CHECK(choice.at("message") == json::parse(R"({"role": "assistant", "reasoning_content": "Hm",
    "content": null, "tool_calls": [
      {"id": "id-f", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
      {"id": "id-g", "type": "function", "function": {"name": "g", "arguments": "{}"}}],
    "refusal": null})"));
}

TEST_CASE("JSON events replace the content") {
  const ServedModel model = TestModel();
  const ApiRequest request =
      Chat(R"(, "stream": true, "stream_options": {"json_events": ["/answer"]})");
  AnswerJson answer(request, model, "id", 1);
  v1::GenerateResponse message = First(Message("", {5}));
  v1::JsonEvent& event = *message.add_json_events();
  event.set_path("/answer");
  event.set_delta("Good mor");
  std::string text = answer.Chunks(0, message);
  CHECK(answer.Chunks(0, Message("", {6})).empty());
  text += answer.Chunks(0, Last(Message("", {7}), v1::FINISH_REASON_STOP));
  const auto events = Events(text);
  REQUIRE(events.size() == 3);
  const auto delta = [&](size_t i) {
    return json::parse(events[i]).at("choices").at(0).at("delta");
  };
  CHECK(delta(0) == json::parse(R"({"role": "assistant"})"));
  CHECK(delta(1) == json::parse(R"({"json_events": [{"path": "/answer", "delta": "Good mor"}]})"));
  CHECK(delta(2) == json::object());
}

}  // namespace
}  // namespace stagecoach::router::http
