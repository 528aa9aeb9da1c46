// Formats generated output as the JSON of OpenAI's API: whole responses and chunks of a stream.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "router/frontend/http/answer.h"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/logprob_json.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// The answers of one request: n choices for each of its prompts.
class AnswerJson final : public Answer {
 public:
  // `request` and `model` outlive this. `request_id` becomes part of the answer's id.
  AnswerJson(const ApiRequest& request, const ServedModel& model, const std::string& request_id,
             int64_t created_unix_s);

  std::string Chunks(size_t i, const v1::GenerateResponse& message) override;
  // Usage, if requested, and [DONE].
  std::string LastChunks() override;
  std::string FailureChunks(const absl::Status& status) override;

  void Collect(size_t i, const v1::GenerateResponse& message) override;
  std::string Whole() override;

 private:
  struct Prompt {
    v1::Prompt content;  // kept if the answer contains parts of it
    uint32_t n_tokens = 0;
    v1::Usage usage;  // empty before the last message
  };
  // Output since the last chunk or, for a whole response, all output.
  struct Choice {
    CompletionLogprobs completion_logprobs;
    bool begun = false;
    std::string text;
    std::string reasoning;
    std::vector<v1::ToolCallDelta> tool_calls;
    boost::json::array json_events;
    boost::json::array token_ids;
    boost::json::array chat_logprobs;
    boost::json::value finish_reason;
    boost::json::value stop_reason;
    uint32_t n_tokens = 0;            // total over all chunks
    uint32_t n_reasoning_tokens = 0;  // part of n_tokens
  };

  // Adds a message to its choice, after the echoed prompt. Returns the choice's index.
  size_t Add(size_t i, const v1::GenerateResponse& message);
  void AddEcho(const Prompt& prompt, Choice& choice) const;
  bool HasNews(const Choice& choice) const;
  // The API's choice object, with a "delta" or a "message"; moves the collected output out.
  boost::json::object TakeChoice(size_t index, bool is_delta,
                                 const boost::json::storage_ptr& memory);
  // The parts of a chat's delta or message.
  boost::json::object FirstDelta() const;
  void TakeContent(Choice& choice, bool is_delta, boost::json::object& content) const;
  void TakeEvents(Choice& choice, boost::json::object& target) const;
  boost::json::value TakeLogprobs(Choice& choice) const;
  // Fields about the prompt, into a choice or the whole response.
  void AddPromptFields(const Prompt& prompt, boost::json::object& target) const;
  boost::json::value StopReason(const v1::GenerateResponse& message) const;
  boost::json::object Usage() const;
  void AppendEvent(std::string& events, const boost::json::array& choices,
                   boost::json::object more = {}) const;
  // Ends the event: adds `more` after its choices, and usage if every event carries it.
  void AppendEnd(std::string& events, const boost::json::object& more) const;
  // Most tokens give a chunk with only text. For these, AppendText writes the same JSON as
  // TakeChoice without building an object.
  bool HasTextAlone(const Choice& choice) const;
  void AppendText(std::string& events, size_t index);

  const ApiRequest& request_;
  const std::string id_;
  const int64_t created_unix_s_;
  const std::string& model_name_;
  const std::string event_head_;  // start of every event of the stream
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;  // n for each prompt
};

}  // namespace stagecoach::router::http
