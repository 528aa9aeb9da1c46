#include "router/frontend/pooled_call.h"

#include <fmt/format.h>

#include <utility>

#include "common/status.h"
#include "router/text/embed_request.h"
#include "router/text/rerank_request.h"

namespace stagecoach::router {
namespace {

// Memory of one number as a float, in a message, and as text, about.
constexpr size_t kValueBytes = 24;

// What MakePooled needs to know of each kind of request.
struct EmbedForm {
  using Request = v1::EmbedRequest;
  using Response = v1::EmbedResponse;
  static size_t NInputs(const Request& request) {
    return static_cast<size_t>(request.input_size());
  }
  static absl::Status Check(const ServedModel& model, const Request& request) {
    return CheckEmbed(model, request);
  }
  static absl::StatusOr<GenerationInput> Build(const ServedModel& model, const Request& request,
                                               size_t i) {
    return BuildEmbedding(model, request, i);
  }
  static void Add(const ServedModel& model, const Request& request,
                  const std::vector<float>& values, Response& response) {
    *response.add_embeddings() = MakeEmbedding(model, request, values);
  }
};

struct RerankForm {
  using Request = v1::RerankRequest;
  using Response = v1::RerankResponse;
  static size_t NInputs(const Request& request) {
    return static_cast<size_t>(request.documents_size());
  }
  static absl::Status Check(const ServedModel& model, const Request& request) {
    return CheckRerank(model, request);
  }
  static absl::StatusOr<GenerationInput> Build(const ServedModel& model, const Request& request,
                                               size_t i) {
    return BuildRerank(model, request, i);
  }
  static void Add(const ServedModel&, const Request&, const std::vector<float>& values,
                  Response& response) {
    response.add_scores(RerankScore(values));
  }
};

absl::Status CheckCount(const Frontend& frontend, size_t n_inputs) {
  if (n_inputs <= frontend.max_choices()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} inputs are more than the queue holds: {}", n_inputs, frontend.max_choices()));
}

template <typename Form>
std::shared_ptr<PooledCall> MakeOf(
    Frontend* frontend, std::shared_ptr<const typename Form::Request> request,
    const std::string& request_id, const Arrival& arrival,
    absl::AnyInvocable<void(absl::StatusOr<typename Form::Response>, MemoryBudget::Lease) &&>
        done) {
  const ServedModel& model = frontend->model();
  const size_t n_inputs = Form::NInputs(*request);
  absl::Status good = Form::Check(model, *request);
  if (good.ok()) good = CheckCount(*frontend, n_inputs);
  if (good.ok()) good = arrival.caller.TakeChoices(n_inputs);
  if (!good.ok()) {
    std::move(done)(good, {});
    return nullptr;
  }
  return PooledCall::Make(
      frontend, n_inputs, Frontend::RequestId(request_id), arrival,
      [&model, request](size_t i) { return Form::Build(model, *request, i); },
      [&model, request, done = std::move(done)](absl::StatusOr<PooledAnswer> answer) mutable {
        if (!answer.ok()) return std::move(done)(answer.status(), {});
        typename Form::Response response;
        for (const std::vector<float>& values : answer->values) {
          Form::Add(model, *request, values, response);
        }
        *response.mutable_usage() = answer->usage;
        std::move(done)(std::move(response), std::move(answer->memory));
      });
}

}  // namespace

PooledCall::PooledCall(Frontend* frontend, size_t n_inputs, Frontend::BuildFunction build,
                       Done done)
    : frontend_(frontend), build_(std::move(build)), done_(std::move(done)) {
  answer_.values.resize(n_inputs);
  answer_.memory = MemoryBudget::Lease(&frontend->memory());
}

std::shared_ptr<PooledCall> PooledCall::Make(Frontend* frontend, size_t n_inputs,
                                             const std::string& request_id, const Arrival& arrival,
                                             Frontend::BuildFunction build, Done done) {
  std::shared_ptr<PooledCall> call(
      new PooledCall(frontend, n_inputs, std::move(build), std::move(done)));
  for (size_t i = 0; i < n_inputs; ++i) {
    call->writers_.emplace_back(call, i);
    call->generations_.push_back(frontend->NewGeneration(
        n_inputs == 1 ? request_id : fmt::format("{}-{}", request_id, i), &call->writers_.back(),
        i == 0 ? nullptr : call->generations_.front().get(), arrival));
  }
  return call;
}

void PooledCall::Cancel() {
  for (const auto& generation : generations_) {
    generation->Cancel(absl::CancelledError("the client is gone, or past its deadline"));
  }
}

void PooledCall::Writer::WriteLast(const v1::GenerateResponse& message) {
  std::exchange(call_, nullptr)->OnValues(input_, message);
}

void PooledCall::Writer::End(const absl::Status& status) {
  std::exchange(call_, nullptr)->Fail(status);
}

void PooledCall::OnValues(size_t input, const v1::GenerateResponse& message) {
  if (!done_) return;  // another input has failed
  answer_bytes_ += kValueBytes * static_cast<size_t>(message.values_size());
  if (!answer_.memory.GrowTo(answer_bytes_)) {
    return Fail(absl::ResourceExhaustedError(
        "the answer takes more memory than there is for requests now (--request-memory): send "
        "fewer inputs, or try again later"));
  }
  answer_.values[input].assign(message.values().begin(), message.values().end());
  const v1::Usage& usage = message.usage();
  answer_.usage.set_prompt_tokens(answer_.usage.prompt_tokens() + usage.prompt_tokens());
  answer_.usage.set_cached_tokens(answer_.usage.cached_tokens() + usage.cached_tokens());
  if (++n_ended_ == answer_.values.size()) {
    std::move(std::exchange(done_, nullptr))(std::move(answer_));
  }
}

void PooledCall::Fail(const absl::Status& status) {
  if (!done_) return;
  std::move(std::exchange(done_, nullptr))(status);
  answer_ = {};
  for (const auto& generation : generations_) {
    generation->Cancel(absl::CancelledError("another input of the request failed"));
  }
}

std::shared_ptr<PooledCall> MakePooled(Frontend* frontend,
                                       std::shared_ptr<const v1::EmbedRequest> request,
                                       const std::string& request_id, const Arrival& arrival,
                                       EmbedDone done) {
  return MakeOf<EmbedForm>(frontend, std::move(request), request_id, arrival, std::move(done));
}

std::shared_ptr<PooledCall> MakePooled(Frontend* frontend,
                                       std::shared_ptr<const v1::RerankRequest> request,
                                       const std::string& request_id, const Arrival& arrival,
                                       RerankDone done) {
  return MakeOf<RerankForm>(frontend, std::move(request), request_id, arrival, std::move(done));
}

}  // namespace stagecoach::router
