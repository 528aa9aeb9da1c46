// The answer of one request, in the form of one API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "router/frontend/http/api_request.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Takes the messages of all prompts, in order within each prompt, and returns either the events of
// a stream or, at the end, the whole response. One thread at a time.
class Answer {
 public:
  virtual ~Answer() = default;

  // Server-sent events for one message of prompt `i`; empty if there is nothing to send yet.
  virtual std::string Chunks(size_t i, const v1::GenerateResponse& message) = 0;
  // The events after the last message.
  virtual std::string LastChunks() = 0;
  // The last events of a stream that fails after it has begun.
  virtual std::string FailureChunks(const absl::Status& status) = 0;

  // Whether a stream's output stays in memory until its end.
  virtual bool keeps_stream() const { return false; }

  // Keeps a message for Whole.
  virtual void Collect(size_t i, const v1::GenerateResponse& message) = 0;
  virtual std::string Whole() = 0;
};

// `request` and `model` outlive the answer. `request_id` becomes part of the answer's id.
std::unique_ptr<Answer> MakeAnswer(const ApiRequest& request, const ServedModel& model,
                                   const std::string& request_id, int64_t created_unix_s);

}  // namespace stagecoach::router::http
