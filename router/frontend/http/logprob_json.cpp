#include "router/frontend/http/logprob_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/text/utf8.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

// JSON has no infinity; OpenAI's API uses this number for impossible tokens.
constexpr double kLeast = -9999.0;

double Finite(float logprob) { return logprob > kLeast ? double(logprob) : kLeast; }

json::object ChatToken(const v1::TokenLogprob& token) {
  json::array bytes;
  bytes.reserve(token.token().size());
  for (const char byte : token.token()) bytes.push_back(static_cast<uint8_t>(byte));
  return {{"token", ReadableToken(token.token())},
          {"logprob", Finite(token.logprob())},
          {"bytes", std::move(bytes)}};
}

std::string Spelling(std::string_view bytes) {
  if (text::IsUtf8(bytes)) return std::string(bytes);
  std::string spelling = "bytes:";
  for (const char byte : bytes) spelling += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return spelling;
}

size_t CountCharacters(std::string_view bytes) {
  return static_cast<size_t>(std::count_if(
      bytes.begin(), bytes.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string ReadableToken(std::string_view bytes) {
  std::string pending(bytes);
  std::string readable;
  text::TakeUtf8(pending, readable);
  if (!pending.empty()) readable += text::kReplacement;
  return readable;
}

json::array ChatLogprobs(const PositionList& positions) {
  json::array content;
  content.reserve(static_cast<size_t>(positions.size()));
  for (const v1::PositionLogprobs& position : positions) {
    json::object token = ChatToken(position.chosen());
    json::array top;
    top.reserve(static_cast<size_t>(position.top_size()));
    for (const v1::TokenLogprob& one : position.top()) top.push_back(ChatToken(one));
    token["top_logprobs"] = std::move(top);
    content.push_back(std::move(token));
  }
  return content;
}

void CompletionLogprobs::AddToken(int32_t id, std::string_view bytes) {
  tokens_.emplace_back(Spelling(bytes));
  offsets_.emplace_back(n_characters_);
  if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) return;
  n_characters_ += CountCharacters(bytes);
}

void CompletionLogprobs::AddFirst(int32_t id) {
  AddToken(id, tokenizer_->TokenBytes(id));
  logprobs_.emplace_back(nullptr);
  tops_.emplace_back(nullptr);
}

void CompletionLogprobs::Add(const v1::PositionLogprobs& position) {
  AddToken(position.chosen().token_id(), position.chosen().token());
  logprobs_.emplace_back(Finite(position.chosen().logprob()));
  json::object top;
  for (const v1::TokenLogprob& one : position.top()) {
    top.emplace(Spelling(one.token()), Finite(one.logprob()));
  }
  top.emplace(Spelling(position.chosen().token()), Finite(position.chosen().logprob()));
  tops_.push_back(std::move(top));
}

json::object CompletionLogprobs::Take() {
  json::object all = {{"tokens", std::move(tokens_)},
                      {"token_logprobs", std::move(logprobs_)},
                      {"top_logprobs", std::move(tops_)},
                      {"text_offset", std::move(offsets_)}};
  tokens_.clear();
  logprobs_.clear();
  tops_.clear();
  offsets_.clear();
  return all;
}

json::array PromptLogprobs(const PositionList& positions) {
  json::array all;
  all.emplace_back(nullptr);
  for (const v1::PositionLogprobs& position : positions) {
    json::object one;
    int64_t rank = 0;
    const auto add = [&one](const v1::TokenLogprob& token, json::value place) {
      one.emplace(fmt::format("{}", token.token_id()),
                  json::object{{"logprob", Finite(token.logprob())},
                               {"rank", std::move(place)},
                               {"decoded_token", ReadableToken(token.token())}});
    };
    for (const v1::TokenLogprob& token : position.top()) add(token, ++rank);
    add(position.chosen(), nullptr);  // has no effect if it is among the top tokens
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace stagecoach::router::http
