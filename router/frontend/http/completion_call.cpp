#include "router/frontend/http/completion_call.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "router/frontend/frontend.h"
#include "router/frontend/http/api_error.h"
#include "router/text/request_builder.h"

namespace stagecoach::router::http {

CompletionCall::CompletionCall(Frontend* frontend, ApiRequest request,
                               const std::string& request_id, std::shared_ptr<Exchange> exchange)
    : frontend_(frontend),
      request_(std::move(request)),
      exchange_(std::move(exchange)),
      answer_(request_, frontend->model(), request_id, std::time(nullptr)) {}

void CompletionCall::Begin(Frontend* frontend, ApiRequest request, const std::string& request_id,
                           std::shared_ptr<Exchange> exchange) {
  auto call = std::make_shared<CompletionCall>(frontend, std::move(request), request_id, exchange);
  call->CreateGenerations(request_id);
  exchange->OnGone([call] { call->CancelAll(absl::CancelledError("the client is gone")); });
  if (!call->NeedsGrammar()) return call->StartGenerations();
  const absl::Status posted = frontend->PostLong([call] { call->StartGenerations(); });
  if (!posted.ok()) call->RefuseAll(posted);
}

void CompletionCall::CreateGenerations(const std::string& request_id) {
  for (size_t i = 0; i < request_.n_prompts(); ++i) {
    writers_.emplace_back(shared_from_this(), i);
    generations_.push_back(frontend_->NewGeneration(
        request_.n_prompts() == 1 ? request_id : fmt::format("{}-{}", request_id, i),
        &writers_.back(), generations_.empty() ? nullptr : generations_.front().get()));
  }
}

bool CompletionCall::NeedsGrammar() const {
  return request_.is_chat ? router::NeedsGrammar(request_.chat)
                          : router::NeedsGrammar(request_.prompts.front());
}

void CompletionCall::RefuseAll(const absl::Status& status) {
  for (const auto& generation : generations_) generation->Start(status);
}

void CompletionCall::StartGenerations() {
  absl::Status refusal;
  if (generations_.front()->cancelled()) refusal = absl::CancelledError("the client is gone");
  for (size_t i = 0; i < generations_.size(); ++i) {
    absl::StatusOr<GenerationInput> input = absl::CancelledError("another prompt was refused");
    if (refusal.ok()) {
      input = request_.is_chat ? BuildGeneration(frontend_->model(), request_.chat)
                               : BuildGeneration(frontend_->model(), request_.prompts[i]);
      refusal = input.status();
    }
    generations_[i]->Start(std::move(input));
  }
}

void CompletionCall::CancelAll(const absl::Status& status) {
  for (const auto& generation : generations_) generation->Cancel(status);
}

void CompletionCall::Writer::WriteLast(const v1::GenerateResponse& message) {
  std::exchange(call_, nullptr)->OnLast(prompt_, message);
}

void CompletionCall::Writer::Fail(const absl::Status& status) {
  std::exchange(call_, nullptr)->OnFailure(prompt_, status);
}

void CompletionCall::StartStreamOnce() {
  if (std::exchange(stream_started_, true)) return;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  // For proxies that would collect the stream.
  head.fields = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  exchange_->StartStream(std::move(head));
}

void CompletionCall::OnMessage(size_t prompt, const v1::GenerateResponse& message) {
  const std::shared_ptr<Generation>& generation = generations_[prompt];
  if (failed_) return generation->WriteDone(false);
  if (!request_.stream) {
    answer_.Collect(prompt, message);
    return generation->WriteDone(true);
  }
  std::string events = answer_.Chunks(prompt, message);
  if (events.empty()) return generation->WriteDone(true);
  StartStreamOnce();
  if (exchange_->Write(std::move(events), [generation](bool ok) { generation->WriteDone(ok); })) {
    generation->WriteDone(true);
  }
}

void CompletionCall::OnLast(size_t prompt, const v1::GenerateResponse& message) {
  ++n_ended_;
  if (failed_) return;
  const bool all_ended = n_ended_ == generations_.size();
  if (!request_.stream) {
    answer_.Collect(prompt, message);
    if (!all_ended) return;
    HttpResponse response;
    response.body = answer_.Whole();
    return exchange_->Respond(std::move(response));
  }
  std::string events = answer_.Chunks(prompt, message);
  StartStreamOnce();
  if (all_ended) return exchange_->EndStream(events + answer_.LastChunks());
  exchange_->Write(std::move(events), [](bool) {});
}

void CompletionCall::OnFailure(size_t prompt, const absl::Status& status) {
  ++n_ended_;
  if (std::exchange(failed_, true)) return;
  const absl::Status told = InClientTerms(request_, prompt, status);
  if (stream_started_) {
    exchange_->EndStream("data: " + ErrorJson(told) + "\n\ndata: [DONE]\n\n");
  } else {
    exchange_->Respond(ErrorResponse(told));
  }
  CancelAll(absl::CancelledError("another prompt of the request failed"));
}

}  // namespace stagecoach::router::http
