// Formats generated output as the JSON of OpenAI's /v1/responses: whole responses and events.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "router/frontend/http/answer.h"
#include "router/frontend/http/output_parts.h"

namespace stagecoach::router::http {

// An answer is a list of items: reasoning, messages and function calls, in the order in which the
// model wrote them. The events that end an item repeat all of it, so a stream's output is kept. One
// prompt, one choice.
class ResponseAnswer final : public Answer {
 public:
  ResponseAnswer(const ApiRequest& request, const ServedModel& model, const std::string& request_id,
                 int64_t created_unix_s);

  std::string Chunks(size_t i, const v1::GenerateResponse& message) override;
  std::string LastChunks() override;
  std::string FailureChunks(const absl::Status& status) override;
  bool keeps_stream() const override { return true; }

  void Collect(size_t i, const v1::GenerateResponse& message) override;
  std::string Whole() override;

 private:
  // "in_progress" before the end, else "completed" or "incomplete".
  const char* Status() const;
  // The response's JSON. `error`: null, or why it failed.
  std::string Response(const char* status, const boost::json::value& error) const;
  boost::json::array Output() const;
  boost::json::object Item(size_t part, const char* status) const;
  // The namespace of a function, or "", and its name there.
  std::string_view SpaceOf(std::string_view name) const;
  std::string_view OwnName(std::string_view name) const;
  boost::json::value Usage() const;
  std::string Event(const char* type, const boost::json::object& data);
  std::string ResponseEvent(const char* type, const std::string& response);
  std::string BeginItem(size_t part);
  std::string Delta(const OutputPiece& piece);
  // The events that end the last item, if there is one.
  std::string EndItem(const char* status);
  // Keeps the response, whose JSON is `response`.
  void Keep(const std::string& response) const;

  const ApiRequest& request_;
  const std::string request_id_;
  const int64_t created_unix_s_;
  const std::string& model_name_;
  OutputParts output_{/*keep_text=*/true};
  bool begun_ = false;
  size_t n_begun_items_ = 0;
  int64_t n_events_ = 0;
};

}  // namespace stagecoach::router::http
