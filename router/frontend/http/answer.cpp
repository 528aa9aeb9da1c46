#include "router/frontend/http/answer.h"

#include "router/frontend/http/answer_json.h"
#include "router/frontend/http/anthropic/messages_answer.h"
#include "router/frontend/http/responses/response_answer.h"

namespace stagecoach::router::http {

std::unique_ptr<Answer> MakeAnswer(const ApiRequest& request, const ServedModel& model,
                                   const std::string& request_id, int64_t created_unix_s) {
  if (request.api == Api::kMessages) {
    return std::make_unique<MessagesAnswer>(request, model, request_id);
  }
  if (request.api == Api::kResponses) {
    return std::make_unique<ResponseAnswer>(request, model, request_id, created_unix_s);
  }
  return std::make_unique<AnswerJson>(request, model, request_id, created_unix_s);
}

}  // namespace stagecoach::router::http
