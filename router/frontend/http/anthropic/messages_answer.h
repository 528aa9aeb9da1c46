// Formats generated output as the JSON of Anthropic's /v1/messages: whole messages and events.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "router/frontend/http/answer.h"
#include "router/frontend/http/output_parts.h"

namespace stagecoach::router::http {

// An answer is a list of blocks: thinking, text and tool_use, in the order in which the model wrote
// them. One prompt, one choice.
class MessagesAnswer final : public Answer {
 public:
  MessagesAnswer(const ApiRequest& request, const ServedModel& model,
                 const std::string& request_id);

  std::string Chunks(size_t i, const v1::GenerateResponse& message) override;
  std::string LastChunks() override;
  std::string FailureChunks(const absl::Status& status) override;

  void Collect(size_t i, const v1::GenerateResponse& message) override;
  std::string Whole() override;

 private:
  // The message without its content.
  boost::json::object Head(boost::json::array content) const;
  // Adds stop_reason and stop_sequence; null before the end.
  void AddStop(boost::json::object& to) const;
  boost::json::object Usage() const;
  // The events that end the last block, if there is one.
  std::string EndBlock() const;

  const ApiRequest& request_;
  const std::string id_;
  const std::string& model_name_;
  OutputParts output_;
  bool begun_ = false;
  size_t n_begun_blocks_ = 0;
};

}  // namespace stagecoach::router::http
