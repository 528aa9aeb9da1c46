// What the router generates, as the JSON of OpenAI's API: whole responses and chunks of a stream.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "router/frontend/http/api_request.h"
#include "router/frontend/http/logprob_json.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// One request's answers: n choices for each of its prompts. Takes the messages of all prompts, in
// each prompt's order, and gives either chunks or, at the end, the response. One thread at a time.
class AnswerJson {
 public:
  // `request` and `model` outlive this. `request_id` becomes part of the answer's id.
  AnswerJson(const ApiRequest& request, const ServedModel& model, const std::string& request_id,
             int64_t created_unix_s);

  // Server-sent events for one message of prompt `i`; empty when there is nothing to say yet.
  std::string Chunks(size_t i, const v1::GenerateResponse& message);
  // The events behind the last message: the usage if it was asked for, and [DONE].
  std::string LastChunks();

  // Keeps a message for Whole.
  void Collect(size_t i, const v1::GenerateResponse& message);
  std::string Whole();

 private:
  struct Prompt {
    v1::Prompt content;  // kept when the answer has something of it
    uint32_t n_tokens = 0;
    uint32_t n_cached_tokens = 0;
  };
  // What came since the last chunk, or all of it.
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
    uint32_t n_tokens = 0;            // over all
    uint32_t n_reasoning_tokens = 0;  // of those
  };

  // Adds a message to its choice, behind the echoed prompt; returns the choice's index.
  size_t Add(size_t i, const v1::GenerateResponse& message);
  void AddEcho(const Prompt& prompt, Choice& choice) const;
  bool HasNews(const Choice& choice) const;
  // The API's choice object, with a "delta" or a "message"; what was added is moved out.
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
  // The event's end: `more` behind its choices, and what is said of usage in every event.
  void AppendEnd(std::string& events, const boost::json::object& more) const;
  // Most tokens give a chunk of text and nothing else. AppendText writes what TakeChoice would have
  // given, without an object on the way.
  bool HasTextAlone(const Choice& choice) const;
  void AppendText(std::string& events, size_t index);

  const ApiRequest& request_;
  const std::string id_;
  const int64_t created_unix_s_;
  const std::string& model_name_;
  const std::string event_head_;  // what every event of the stream begins with
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;  // n for each prompt
};

}  // namespace stagecoach::router::http
