#include "cli/json_out.h"

#include <boost/json.hpp>
#include <string>

#include "common/rpc/finish_reason.h"

namespace stagecoach::cli {
namespace {

namespace json = boost::json;

// Length of the complete UTF-8 character at the start of `bytes`; 0: there is none.
size_t CharacterBytes(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(0);
  const size_t n = lead < 0x80                   ? 1
                   : lead >= 0xC2 && lead < 0xE0 ? 2
                   : (lead & 0xF0) == 0xE0       ? 3
                   : lead >= 0xF0 && lead < 0xF5 ? 4
                                                 : 0;
  if (n == 0 || bytes.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and code points above U+10FFFF.
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  return n;
}

json::object ToJson(const v1::TokenLogprob& token) {
  const std::string text = ToValidUtf8(token.token());
  json::object object{{"token_id", token.token_id()}, {"token", text}};
  if (text != token.token()) {
    json::array bytes;
    for (const char c : token.token()) bytes.push_back(static_cast<unsigned char>(c));
    object["bytes"] = std::move(bytes);
  }
  object["logprob"] = token.logprob();
  return object;
}

json::object ToJson(const v1::PositionLogprobs& position) {
  json::object object = ToJson(position.chosen());
  json::array& top = object["top"].emplace_array();
  for (const v1::TokenLogprob& token : position.top()) top.push_back(ToJson(token));
  return object;
}

template <typename Positions>
json::array ToJsonArray(const Positions& positions) {
  json::array array;
  for (const v1::PositionLogprobs& position : positions) array.push_back(ToJson(position));
  return array;
}

void AddChoice(const Choice& choice, const v1::SamplingParams& sampling, json::object& object) {
  object["token_ids"] = json::value_from(choice.token_ids);
  object["text"] = ToValidUtf8(choice.text);
  object["finish_reason"] = FinishReasonName(choice.finish_reason);
  object["stop_reason"] = StopReasonJson(sampling, choice.stop_reason);
  if (!choice.logprobs.empty()) object["logprobs"] = ToJsonArray(choice.logprobs);
}

}  // namespace

std::string ToValidUtf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t n = CharacterBytes(bytes);
    text += n > 0 ? bytes.substr(0, n) : std::string_view("\xEF\xBF\xBD");
    bytes.remove_prefix(std::max<size_t>(n, 1));
  }
  return text;
}

json::value StopReasonJson(const v1::SamplingParams& sampling, const std::string& reason) {
  for (const std::string& stop : sampling.stop()) {
    if (stop == reason) return json::value(reason);
  }
  for (const int32_t id : sampling.stop_token_ids()) {
    if (std::to_string(id) == reason) return json::value(id);
  }
  return nullptr;
}

json::object ToJson(const Completion& completion, const v1::SamplingParams& sampling) {
  json::object object;
  if (!completion.request_id().empty()) object["request_id"] = completion.request_id();
  const v1::Prompt& prompt = completion.prompt();
  object["prompt_ids"] = json::array(prompt.token_ids().begin(), prompt.token_ids().end());
  if (!prompt.text().empty()) object["prompt"] = prompt.text();
  if (prompt.logprobs_size() > 0) {
    json::array positions = ToJsonArray(prompt.logprobs());
    positions.insert(positions.begin(), nullptr);
    object["prompt_logprobs"] = std::move(positions);
  }
  if (completion.choices().size() == 1) {
    AddChoice(completion.choices().front(), sampling, object);
  } else {
    json::array& choices = object["choices"].emplace_array();
    for (const Choice& choice : completion.choices()) {
      json::object one{{"index", choices.size()}};
      AddChoice(choice, sampling, one);
      choices.push_back(std::move(one));
    }
  }
  const v1::Usage& usage = completion.usage();
  object["usage"] = {{"prompt_tokens", usage.prompt_tokens()},
                     {"completion_tokens", usage.completion_tokens()},
                     {"cached_tokens", usage.cached_tokens()},
                     {"stored_tokens",
                      {{"host", usage.stored_tokens().host()},
                       {"disk", usage.stored_tokens().disk()},
                       {"store", usage.stored_tokens().store()}}}};
  const v1::Timing& timing = completion.timing();
  object["timing"] = {{"queue_ms", timing.queue_ms()},
                      {"ttft_ms", timing.ttft_ms()},
                      {"total_ms", timing.total_ms()},
                      {"preemptions", timing.preemptions()}};
  return object;
}

}  // namespace stagecoach::cli
