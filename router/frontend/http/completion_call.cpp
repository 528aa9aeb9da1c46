#include "router/frontend/http/completion_call.h"

#include <fmt/format.h>

#include <utility>

#include "common/status.h"
#include "router/frontend/frontend.h"
#include "router/frontend/http/api_error.h"
#include "router/frontend/http/event_stream.h"
#include "router/frontend/http/stream_relay.h"
#include "router/text/request_builder.h"
#include "router/text/sampling_params.h"

namespace stagecoach::router::http {
namespace {

// Memory of a message's part of a whole answer, as JSON values and then as text, about.
size_t AnswerBytes(const v1::GenerateResponse& message) {
  constexpr size_t kTokenBytes = 128, kLogprobBytes = 640;
  size_t n_logprobs = 0;
  for (const v1::PositionLogprobs& one : message.logprobs()) n_logprobs += 1 + one.top_size();
  for (const v1::PositionLogprobs& one : message.prompt().logprobs()) {
    n_logprobs += 1 + one.top_size();
  }
  return kLogprobBytes * n_logprobs + kTokenBytes * message.token_ids_size() +
         3 * (message.text().size() + message.reasoning().size() + message.prompt().text().size());
}

bool NeedsGrammar(const ApiRequest& request) {
  return request.is_chat ? router::NeedsGrammar(request.chat)
                         : router::NeedsGrammar(request.prompts.front());
}

// Builds the prompts of a request, and holds what they are made of.
struct PromptBuilder {
  absl::StatusOr<GenerationInput> operator()(size_t i) {
    absl::StatusOr<GenerationInput> input =
        request.is_chat ? BuildGeneration(*model, request.chat, UnixSeconds(request.arrival))
                        : BuildGeneration(*model, request.prompts[i]);
    if (!input.ok()) return input;
    n_logprobs += input->sampling.n_logprobs;
    if (n_logprobs <= kMaxLogprobs) return input;
    return absl::InvalidArgumentError(
        fmt::format("prompt: the request may produce {} log-probabilities or more; at most {} "
                    "are allowed in an answer: send fewer prompts per request",
                    n_logprobs, kMaxLogprobs));
  }

  // First, so destroyed last: the server's shutdown waits for it.
  std::shared_ptr<Exchange> exchange;
  MemoryBudget::Lease body_lease;
  ApiRequest request;
  const ServedModel* model;
  uint64_t n_logprobs = 0;  // of all prompts so far
};

std::vector<v1::SamplingParams*> SamplingOf(ApiRequest& request) {
  if (request.is_chat) return {request.chat.mutable_sampling()};
  std::vector<v1::SamplingParams*> all;
  for (v1::GenerateRequest& prompt : request.prompts) all.push_back(prompt.mutable_sampling());
  return all;
}

v1::StreamRecord RecordOf(ApiRequest& request, std::string_view body) {
  v1::StreamRecord record;
  (request.is_chat ? record.mutable_chat_completions_body() : record.mutable_completions_body())
      ->assign(body);
  for (const v1::SamplingParams* sampling : SamplingOf(request)) {
    record.add_seeds(sampling->seed());
  }
  return record;
}

absl::StatusOr<ApiRequest> RequestOf(const v1::StreamRecord& record) {
  SC_ASSIGN_OR_RETURN(ApiRequest request, record.has_chat_completions_body()
                                              ? ParseChatRequest(record.chat_completions_body())
                                              : ParseCompletionRequest(record.completions_body()));
  const std::vector<v1::SamplingParams*> all = SamplingOf(request);
  if (std::cmp_not_equal(record.seeds_size(), all.size())) {
    return absl::DataLossError("the journal has no seed for each prompt");
  }
  for (size_t i = 0; i < all.size(); ++i) all[i]->set_seed(record.seeds(static_cast<int>(i)));
  return request;
}

// For the log.
const char* PathOf(const ApiForm& form) {
  switch (form.api) {
    case Api::kMessages:
      return "/v1/messages";
    case Api::kResponses:
      return "/v1/responses";
    default:
      return form.is_chat ? "/v1/chat/completions" : "/v1/completions";
  }
}

}  // namespace

CompletionCall::CompletionCall(Frontend* frontend, const ApiRequest& request,
                               const std::string& request_id, std::shared_ptr<Exchange> exchange)
    : frontend_(frontend),
      request_(WithoutInput(request)),
      exchange_(std::move(exchange)),
      answer_(MakeAnswer(request_, frontend->model(), request_id, UnixSeconds(request.arrival))),
      memory_(&frontend->memory()) {}

void CompletionCall::Begin(Frontend* frontend, ApiRequest request, const std::string& request_id,
                           std::string_view body, std::shared_ptr<Exchange> exchange,
                           MemoryBudget::Lease body_lease) {
  if (request.resumable) {
    for (v1::SamplingParams* sampling : SamplingOf(request)) FixSeed(*sampling);
  }
  auto call = std::make_shared<CompletionCall>(frontend, request, request_id, exchange);
  call->CreateGenerations(request_id);
  if (call->request_.resumable) {
    auto stream = frontend->KeepStream(StreamProtocol::kHttp, request_id, call->generations_,
                                       [&] { return RecordOf(request, body); });
    if (!stream.ok()) {
      return Frontend::StartAll(call->generations_, [&stream](size_t) { return stream.status(); });
    }
    call->kept_ = std::move(stream->writer);
    call->exchange_ = nullptr;
    RelayStream(std::move(stream->reader), exchange, call->generations_.front()->lane());
  } else {
    exchange->OnGone([call] { call->CancelAll(absl::CancelledError("the client is gone")); });
  }
  const bool needs_grammar = NeedsGrammar(request);
  PromptBuilder build = {.exchange = std::move(exchange),
                         .body_lease = std::move(body_lease),
                         .request = std::move(request),
                         .model = &frontend->model()};
  // This is a prompt thread already.
  if (!needs_grammar) return Frontend::StartAll(call->generations_, std::move(build));
  frontend->PostStartAll(call->generations_, needs_grammar, std::move(build));
}

absl::Status CompletionCall::Continue(Frontend* frontend, JournalStream stream,
                                      const Arrival& arrival, WorkQueue::Task done) {
  SC_ASSIGN_OR_RETURN(ApiRequest request, RequestOf(stream.record));
  request.arrival = arrival;
  const std::string& id = stream.record.request_id();
  auto call = std::make_shared<CompletionCall>(frontend, request, id, nullptr);
  call->CreateGenerations(id);
  auto kept = frontend->KeepAgain(StreamProtocol::kHttp, id, call->generations_, stream.number);
  if (!kept.ok()) {
    call->writers_.clear();  // they keep the call
    return kept.status();
  }
  call->kept_ = *std::move(kept);
  const bool needs_grammar = NeedsGrammar(request);
  frontend->PostContinue(call->generations_, needs_grammar,
                         PromptBuilder{.exchange = nullptr,
                                       .body_lease = MemoryBudget::Lease(&frontend->memory()),
                                       .request = std::move(request),
                                       .model = &frontend->model()},
                         std::move(stream.events), std::move(done));
  return absl::OkStatus();
}

void CompletionCall::CreateGenerations(const std::string& request_id) {
  Arrival arrival = request_.arrival;
  arrival.api = PathOf(request_);
  for (size_t i = 0; i < request_.n_prompts(); ++i) {
    writers_.emplace_back(shared_from_this(), i);
    generations_.push_back(frontend_->NewGeneration(
        request_.n_prompts() == 1 ? request_id : fmt::format("{}-{}", request_id, i),
        &writers_.back(), generations_.empty() ? nullptr : generations_.front().get(), arrival));
  }
}

void CompletionCall::CancelAll(const absl::Status& status) {
  for (const auto& generation : generations_) generation->Cancel(status);
}

void CompletionCall::Writer::WriteLast(const v1::GenerateResponse& message) {
  std::exchange(call_, nullptr)->OnLast(prompt_, message);
}

void CompletionCall::Writer::End(const absl::Status& status) {
  std::exchange(call_, nullptr)->OnFailure(prompt_, status);
}

void CompletionCall::StartStreamOnce() {
  if (std::exchange(stream_started_, true)) return;
  if (kept_ != nullptr) return kept_->Start();
  exchange_->StartStream(EventStreamHead(), /*has_ids=*/false);
}

bool CompletionCall::WriteEvents(std::string events,
                                 const std::shared_ptr<Generation>& generation) {
  if (kept_ != nullptr) {
    SetLastEventId(events, n_tokens_);
    kept_->Append(n_tokens_, std::move(events));
    return true;
  }
  if (events.empty()) return true;
  return exchange_->Write(std::move(events), [generation](bool ok) {
    if (generation != nullptr) generation->WriteDone(ok);
  });
}

void CompletionCall::EndStream(std::string events) {
  if (kept_ == nullptr) return exchange_->EndStream(events + answer_->LastChunks());
  WriteEvents(std::move(events), nullptr);
  kept_->Append(n_tokens_, answer_->LastChunks());
  kept_->End(absl::OkStatus());
}

void CompletionCall::OnQueued() {
  // Starts the stream only after all are queued, so that an earlier refusal is still an HTTP
  // status.
  if (request_.stream && ++n_queued_ == generations_.size()) StartStreamOnce();
}

bool CompletionCall::TakeMemory(size_t prompt, const v1::GenerateResponse& message) {
  answer_bytes_ += AnswerBytes(message);
  if (memory_.GrowTo(answer_bytes_)) return true;
  const bool never_fits = answer_bytes_ > frontend_->memory().limit_bytes();
  constexpr char kWhy[] =
      "the whole answer takes more memory than there is for requests (--request-memory): ask for "
      "a stream, or for fewer choices, tokens or log-probabilities";
  FailAll(prompt,
          never_fits ? absl::InvalidArgumentError(kWhy) : absl::ResourceExhaustedError(kWhy));
  return false;
}

bool CompletionCall::Collect(size_t prompt, const v1::GenerateResponse& message) {
  if (!TakeMemory(prompt, message)) return false;
  answer_->Collect(prompt, message);
  return true;
}

bool CompletionCall::OnMessage(size_t prompt, const v1::GenerateResponse& message) {
  const std::shared_ptr<Generation>& generation = generations_[prompt];
  if (failed_) {
    generation->WriteDone(false);
    return false;
  }
  if (!request_.stream) {
    Collect(prompt, message);
    return true;
  }
  if (answer_->keeps_stream() && !TakeMemory(prompt, message)) return true;
  n_tokens_ += static_cast<uint64_t>(message.token_ids_size());
  std::string events = answer_->Chunks(prompt, message);
  if (!events.empty()) StartStreamOnce();
  return WriteEvents(std::move(events), generation);
}

void CompletionCall::OnLast(size_t prompt, const v1::GenerateResponse& message) {
  ++n_ended_;
  if (failed_) return;
  const bool all_ended = n_ended_ == generations_.size();
  if (!request_.stream) {
    if (!Collect(prompt, message) || !all_ended) return;
    HttpResponse response;
    response.body = answer_->Whole();
    memory_.ShrinkTo(response.body.size());
    response.memory = std::move(memory_);
    return exchange_->Respond(std::move(response));
  }
  n_tokens_ += static_cast<uint64_t>(message.token_ids_size());
  std::string events = answer_->Chunks(prompt, message);
  StartStreamOnce();
  if (all_ended) return EndStream(std::move(events));
  WriteEvents(std::move(events), nullptr);
}

void CompletionCall::OnFailure(size_t prompt, const absl::Status& status) {
  ++n_ended_;
  FailAll(prompt, status);
}

void CompletionCall::FailAll(size_t prompt, const absl::Status& status) {
  if (std::exchange(failed_, true)) return;
  const absl::Status told = InClientTerms(request_, prompt, status);
  if (kept_ != nullptr) {
    kept_->End(told);
  } else {
    const ErrorForm form =
        request_.api == Api::kMessages ? ErrorForm::kAnthropic : ErrorForm::kOpenAi;
    exchange_->FailStream(ErrorResponse(told, form), answer_->FailureChunks(told));
  }
  CancelAll(absl::CancelledError("another prompt of the request failed"));
}

}  // namespace stagecoach::router::http
