// Compares prompts of conversations with those of transformers, and reads the answers that the
// templates would write, cut at every byte. The grammar of enforced calls must allow these answers.
// STAGECOACH_CHAT_GOLDEN names another file than the committed one; tests/golden/make_chat.py makes
// both.
#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/frontend/http/api_request.h"
#include "router/text/blank.h"
#include "router/text/chat.h"
#include "router/text/chat_output.h"
#include "router/text/output_channels.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

std::filesystem::path GoldenPath() {
  const char* const other = std::getenv("STAGECOACH_CHAT_GOLDEN");
  return std::filesystem::path(SC_CHAT_GOLDEN) / (other != nullptr ? other : "golden.json");
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  INFO(path);
  REQUIRE(file.good());
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string Text(const json::value& value) { return std::string(value.as_string()); }

ServedModel Model(const std::string& source) {
  ServedModel model = TestModel();
  model.chat_template = text::ChatTemplate::FromSource(source).value();
  model.max_model_len = 1 << 20;
  FindReasoning(model);
  return model;
}

v1::ChatRequest Request(json::object body, const json::value& tools) {
  if (body.contains("tools")) body["tools"] = tools;
  const auto request = ParseChatRequest(json::serialize(body));
  INFO(request.status().ToString());
  REQUIRE(request.ok());
  return request->chat;
}

// The answer in pieces of `n` bytes, merged like in the front end; n = 0: in two pieces, cut at
// `cut`.
v1::GenerateResponse Read(const OutputFormat& format, std::string_view text, size_t n, size_t cut) {
  OutputChannels channels(&format, "key");
  v1::GenerateResponse message;
  if (n == 0) {
    channels.Push(text.substr(0, cut), &message);
    channels.Push(text.substr(cut), &message);
  } else {
    for (size_t at = 0; at < text.size(); at += n) channels.Push(text.substr(at, n), &message);
  }
  channels.End(&message);
  return message;
}

void CheckAnswer(const OutputFormat& format, const json::object& answer) {
  const std::string text = Text(answer.at("text"));
  INFO(text);
  const v1::GenerateResponse message = Read(format, text, text.size() + 1, 0);
  CHECK(message.reasoning() == Text(answer.at("reasoning")));
  CHECK(message.text() == Text(answer.at("content")));
  const json::array& calls = answer.at("calls").as_array();
  REQUIRE(size_t(message.tool_calls_size()) == calls.size());
  for (int i = 0; i < message.tool_calls_size(); ++i) {
    CHECK(message.tool_calls(i).name() == Text(calls[i].at(0)));
    CHECK(json::parse(message.tool_calls(i).arguments()) == calls[i].at(1));
  }
  const std::string whole = message.SerializeAsString();
  CHECK(Read(format, text, 1, 0).SerializeAsString() == whole);
  for (size_t cut = 1; cut < text.size(); ++cut) {
    INFO("cut at " << cut);
    REQUIRE(Read(format, text, 0, cut).SerializeAsString() == whole);
  }
}

// The answer calls tools, and does nothing else.
void CheckEnforced(const ServedModel& model, v1::ChatRequest request, const ChatPrompt& prompt,
                   const OutputFormat& format, std::string text) {
  const size_t end = text.rfind(format.reasoning_marks.end);
  if (end != std::string::npos) text.erase(0, end + format.reasoning_marks.end.size());
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  text.erase(0, text.find_first_not_of(kBlanks));
  request.mutable_tool_choice()->set_mode(v1::ToolChoice::REQUIRED);
  const auto use = ReadToolUse(model, request, prompt);
  REQUIRE(use.ok());
  INFO(use->calls << "\n" << text);
  const auto grammar =
      (*model.grammars)->Get({.kind = text::GrammarKind::kLark, .text = use->calls});
  REQUIRE(grammar.ok());
  const auto matcher = (*grammar)->NewMatcher().value();
  CHECK(matcher->Consume(model.tokenizer->Encode(text, false).value()).ok());
  std::vector<uint32_t> words((*model.grammars)->vocabulary()->n_mask_words());
  const auto may_end = matcher->Mask(words);
  CHECK((may_end.ok() && *may_end));
}

TEST_CASE("conversations of each model family are rendered and read as in transformers") {
  const json::value golden = json::parse(ReadFile(GoldenPath()));
  for (const json::value& family : golden.at("families").as_array()) {
    const ServedModel model =
        Model(ReadFile(GoldenPath().parent_path() / Text(family.at("template"))));
    for (const json::value& test : family.at("cases").as_array()) {
      INFO(family.at("name") << ": " << test.at("name"));
      const v1::ChatRequest request = Request(test.at("request").as_object(), golden.at("tools"));
      const auto prompt = RenderChat(model, request, golden.at("now_unix_s").as_int64());
      INFO(prompt.status().ToString());
      REQUIRE(prompt.ok());
      CHECK(prompt->text == Text(test.at("text")));
      const json::value* const answer = test.as_object().if_contains("answer");
      if (answer == nullptr) continue;
      OutputFormat format = ChatOutput(model, request, *prompt).value();
      if (!format.tools && !answer->at("calls").as_array().empty()) {
        // The template does not show tools, but it knows calls.
        format.tools = {.family = prompt->family};
      }
      CheckAnswer(format, answer->as_object());
      // The template of gpt-oss names the function in another place than the model.
      if (prompt->family != ToolFamily::kHarmony && !prompt->tools.empty() &&
          !answer->at("calls").as_array().empty() && answer->at("content").as_string().empty()) {
        CheckEnforced(model, request, *prompt, format, Text(answer->at("text")));
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::router::http
