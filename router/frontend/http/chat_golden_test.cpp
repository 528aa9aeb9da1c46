// Compares prompts of conversations with those of transformers, and reads the answers that the
// templates would write, cut at every byte. STAGECOACH_CHAT_GOLDEN names another file than the
// committed one; tests/golden/make_chat.py makes both.
#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "catch2/catch_test_macros.hpp"
#include "router/frontend/http/api_request.h"
#include "router/text/chat.h"
#include "router/text/chat_output.h"
#include "router/text/output_channels.h"

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
  ServedModel model;
  model.name = "test-model";
  model.tokenizer = text::Tokenizer::Load(std::string(SC_ROUTER_TESTDATA) + "/byte_level").value();
  model.spec.vocab_size = model.tokenizer->vocab_size();
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
    }
  }
}

}  // namespace
}  // namespace stagecoach::router::http
