#include "router/frontend/http/http_api.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/json.hpp>
#include <ctime>
#include <utility>

#include "common/check.h"
#include "common/metrics/metrics_page.h"
#include "common/status.h"
#include "common/url_text.h"
#include "common/version.h"
#include "router/access/request_id.h"
#include "router/frontend/frontend.h"
#include "router/frontend/http/anthropic/count_tokens.h"
#include "router/frontend/http/anthropic/messages_request.h"
#include "router/frontend/http/api_error.h"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/assets.h"
#include "router/frontend/http/completion_call.h"
#include "router/frontend/http/dropped.h"
#include "router/frontend/http/model_json.h"
#include "router/frontend/http/page_policy.h"
#include "router/frontend/http/pooled_request.h"
#include "router/frontend/http/rate_fields.h"
#include "router/frontend/http/responses/response_turn.h"
#include "router/frontend/http/responses/responses_request.h"
#include "router/frontend/http/stream_relay.h"
#include "router/frontend/http/stream_request.h"
#include "router/frontend/http/tokenize_api.h"
#include "router/frontend/new_request_id.h"
#include "router/frontend/pooled_call.h"

namespace stagecoach::router::http {
namespace {

constexpr char kModelsPrefix[] = "/v1/models/";
constexpr char kStreamsPrefix[] = "/v1/streams/";
constexpr char kResponsesPrefix[] = "/v1/responses/";
constexpr std::string_view kInputItems = "/input_items";
// Limit of queued /metrics and /status requests; operators never need more.
constexpr size_t kMaxBeside = 64;

HttpResponse Json(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

// Where a client of another server's path should go.
const char* InsteadOf(std::string_view path) {
  struct Foreign {
    const char* path;
    const char* instead;
  };
  static constexpr Foreign kForeign[] = {
      {"/api/chat", "this is Ollama's; use /v1/chat/completions"},
      {"/api/generate", "this is Ollama's; use /v1/completions"},
      {"/api/tags", "this is Ollama's; use /v1/models"},
      {"/api/embed", "this is Ollama's; use /v1/embeddings"},
      {"/completion", "this is llama.cpp's; use /v1/completions"},
      {"/completions", "use /v1/completions: the base URL ends with /v1"},
      {"/chat/completions", "use /v1/chat/completions: the base URL ends with /v1"},
      {"/embeddings", "use /v1/embeddings: the base URL ends with /v1"},
      {"/rerank", "use /v1/rerank"},
      {"/v2/rerank", "this is Cohere's; use /v1/rerank"},
      {"/responses", "use /v1/responses: the base URL ends with /v1"},
      {"/messages", "use /v1/messages: the base URL is without a path"},
      {"/v1/v1/messages", "use /v1/messages: the base URL is without a path"},
      {"/generate", "this is TGI's and SGLang's; use /v1/completions"},
      {"/v1/complete", "use /v1/messages"},
  };
  for (const Foreign& one : kForeign) {
    if (path == one.path) return one.instead;
  }
  return "see /openapi.json";
}

std::string StatusWord(const char* word) {
  return boost::json::serialize(boost::json::object{{"status", word}});
}

// Checked before the answer is allocated with one entry per choice.
absl::Status CheckChoices(const ApiRequest& request, size_t most) {
  if (request.n_prompts() * request.n() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("n: {} choices for each of {} prompts are more than the queue holds: {}",
                  request.n(), request.n_prompts(), most));
}

// Answers Embed or Rerank, and holds what its texts were parsed from.
template <typename Form, typename Response>
struct PooledAnswerer {
  void operator()(absl::StatusOr<Response> answer, MemoryBudget::Lease memory) && {
    if (!answer.ok()) return exchange->Respond(ErrorResponse(answer.status()));
    HttpResponse response = Json(format(*form, model_name, request_id, *answer));
    memory.ShrinkTo(response.body.size());
    response.memory = std::move(memory);
    exchange->Respond(std::move(response));
  }

  // First, so destroyed last: the server's shutdown waits for it.
  std::shared_ptr<Exchange> exchange;
  MemoryBudget::Lease body_lease;
  std::shared_ptr<const Form> form;
  std::string (*format)(const Form&, const std::string&, const std::string&, const Response&);
  std::string model_name;
  std::string request_id;
};

int64_t StartedAt() {
  static const int64_t started = std::time(nullptr);
  return started;
}

}  // namespace

HttpApi::HttpApi(Frontend* frontend, std::shared_ptr<Access> access,
                 std::vector<std::string> cors_origins, Sources sources, StageLoads stage_loads,
                 Recoveries recoveries, const ResponseLimits& responses)
    : frontend_(frontend),
      access_(std::move(access)),
      cors_(std::move(cors_origins)),
      sources_(std::move(sources)),
      stage_loads_(std::move(stage_loads)),
      recoveries_(std::move(recoveries)),
      responses_(responses) {
  sources_.push_back(metrics_.collectable());
  StartedAt();
}

const HttpApi::Route* HttpApi::FindRoute(const HttpRequest& request, std::string& methods) {
  static constexpr Route kRoutes[] = {
      {"POST", "/v1/chat/completions", &HttpApi::ChatCompletions, true},
      {"POST", "/v1/completions", &HttpApi::Completions, true},
      {"POST", "/v1/responses", &HttpApi::Responses, true},
      {"GET", kResponsesPrefix, &HttpApi::ReadResponse, true, true},
      {"DELETE", kResponsesPrefix, &HttpApi::DeleteResponse, true, true},
      {"POST", "/v1/messages", &HttpApi::Messages, true},
      {"POST", "/v1/messages/count_tokens", &HttpApi::CountTokens, true},
      {"GET", "/v1/models", &HttpApi::Models, true},
      {"GET", kModelsPrefix, &HttpApi::Model, true, true},
      {"GET", kStreamsPrefix, &HttpApi::ReadStream, true, true},
      {"DELETE", kStreamsPrefix, &HttpApi::CancelStream, true, true},
      {"POST", "/v1/embeddings", &HttpApi::Embeddings, true},
      {"POST", "/v1/rerank", &HttpApi::Rerank, true},
      {"POST", "/tokenize", &HttpApi::Tokenize, true},
      {"POST", "/detokenize", &HttpApi::Detokenize, true},
      {"GET", "/status", &HttpApi::Status, true},
      {"GET", "/metrics", &HttpApi::Metrics, true},
      {"GET", "/health", &HttpApi::Health, false},
      {"GET", "/ready", &HttpApi::Ready, false},
      {"GET", "/version", &HttpApi::Version, false},
      {"GET", "/openapi.json", &HttpApi::OpenApi, false},
      {"GET", "/", &HttpApi::Page, false},
  };
  for (const Route& route : kRoutes) {
    const std::string_view path = request.path;
    if (route.is_prefix ? !path.starts_with(route.path) : path != route.path) continue;
    const bool has_head =
        route.method == std::string_view("GET") && route.path != std::string_view(kStreamsPrefix);
    if (request.method == route.method || (has_head && request.method == "HEAD")) return &route;
    if (!methods.empty()) methods += ", ";
    methods += route.method;
    if (has_head) methods += ", HEAD";
  }
  return nullptr;
}

absl::StatusOr<Caller> HttpApi::FindCaller(const HttpRequest& head) {
  const bool is_post = head.method == "POST";
  if (is_post) SC_RETURN_IF_ERROR(cors_.CheckPost(head));
  absl::StatusOr<Caller> caller =
      access_->Admit(head.authorization, is_post ? Access::Kind::kWork : Access::Kind::kLook);
  if (caller.ok() && access_->has_keys()) frontend_->metrics().CountTenantRequest(caller->tenant);
  return caller;
}

std::optional<HttpResponse> HttpApi::AnswerToHead(const HttpRequest& head, Caller& caller) {
  const ErrorForm form = ErrorFormOf(head.path);
  if (const absl::Status status = cors_.CheckSource(head); !status.ok()) {
    return ErrorResponse(status, form);
  }
  if (head.method == "OPTIONS") {
    HttpResponse response;
    response.status = 204;
    response.fields = Cors::PreflightFields();
    return response;
  }
  std::string methods;
  const Route* route = FindRoute(head, methods);
  if (route == nullptr) {
    const std::string what = fmt::format("{} {}", head.method, head.path);
    HttpResponse response =
        methods.empty()
            ? HttpErrorResponse(404, fmt::format("unknown URL: {}; {}", what, InsteadOf(head.path)),
                                "unknown_url", form)
            : HttpErrorResponse(405, "method not allowed for this path: " + what,
                                "method_not_allowed", form);
    if (!methods.empty()) response.fields.emplace_back("Allow", methods);
    return response;
  }
  if (route->needs_key) {
    absl::StatusOr<Caller> found = FindCaller(head);
    if (!found.ok()) {
      // The answer to a key whose rate is used up has the rate in its header.
      if (auto known = access_->Admit(head.authorization, Access::Kind::kLook); known.ok()) {
        caller = *std::move(known);
      }
      return ErrorResponse(found.status(), form);
    }
    caller = *std::move(found);
  }
  const std::string& type = head.content_type;
  if (head.method == "POST" && !type.empty() && !type.starts_with("application/json")) {
    return HttpErrorResponse(
        415, "the body must be JSON: send it with Content-Type: application/json", "", form);
  }
  return std::nullopt;
}

Admission HttpApi::Admit(const HttpRequest& head) {
  Admission admission;
  const bool has_id = !head.request_id.empty() && IsFitRequestId(head.request_id);
  admission.request_id = has_id ? head.request_id : NewRequestId();
  admission.fields = cors_.Fields(head.origin);
  admission.fields.emplace_back("X-Request-Id", admission.request_id);
  if (ErrorFormOf(head.path) == ErrorForm::kAnthropic) {
    admission.fields.emplace_back("request-id", admission.request_id);  // Anthropic's name
  }
  spdlog::debug("http {}: {} {}", admission.request_id, head.method, head.path);
  admission.answer = AnswerToHead(head, admission.caller);
  if (const RateLimit* rate = admission.caller.rate.get()) {
    for (auto& field : RateFields(*rate, ErrorFormOf(head.path))) {
      admission.fields.push_back(std::move(field));
    }
  }
  return admission;
}

void HttpApi::Handle(HttpRequest request, Admission admission, std::shared_ptr<Exchange> exchange) {
  std::string methods;
  const Route* route = FindRoute(request, methods);
  SC_CHECK(route != nullptr);  // Admit has checked this
  const ErrorForm form = ErrorFormOf(request.path);
  (this->*route->handler)({.exchange = std::move(exchange),
                           .request = std::move(request),
                           .request_id = std::move(admission.request_id),
                           .caller = std::move(admission.caller),
                           .form = form});
}

void HttpApi::Page(Call call) {
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.fields = PageFields(kPageHtml);
  response.body = kPageHtml;
  call.exchange->Respond(std::move(response));
}

void HttpApi::OpenApi(Call call) { call.exchange->Respond(Json(std::string(kOpenApiJson))); }

void HttpApi::Health(Call call) { call.exchange->Respond(Json(StatusWord("ok"))); }

void HttpApi::Ready(Call call) {
  const std::string reason = frontend_->NotReady();
  HttpResponse response = Json(StatusWord(draining_ ? "draining" : "ready"));
  if (!draining_ && !reason.empty()) {
    response = Json(
        boost::json::serialize(boost::json::object{{"status", "stalled"}, {"reason", reason}}));
  }
  if (draining_ || !reason.empty()) response.status = 503;
  call.exchange->Respond(std::move(response));
}

void HttpApi::Version(Call call) {
  call.exchange->Respond(Json(
      boost::json::serialize(boost::json::object{{"name", "stagecoach"}, {"version", kVersion}})));
}

void HttpApi::Models(Call call) {
  call.exchange->Respond(Json(ModelListJson(frontend_->model(), StartedAt())));
}

void HttpApi::Model(Call call) {
  const std::string name =
      PercentDecoded(std::string_view(call.request.path).substr(sizeof kModelsPrefix - 1));
  const absl::Status known = CheckModelName(frontend_->model(), name);
  call.exchange->Respond(known.ok() ? Json(ModelJson(frontend_->model(), StartedAt()))
                                    : ErrorResponse(known));
}

void HttpApi::Beside(const Call& call, WorkQueue::Task task) {
  if (beside_.n_queued() >= kMaxBeside) {
    return call.exchange->Respond(HttpErrorResponse(
        503, "too many requests of this kind are waiting; try again later", "service_unavailable"));
  }
  beside_.Post(std::move(task));
}

void HttpApi::Metrics(Call call) {
  Beside(call, [this, exchange = call.exchange] {
    HttpResponse response;
    response.content_type = kMetricsType;
    response.body = MetricsPage(sources_);
    exchange->Respond(std::move(response));
  });
}

ServerState HttpApi::State() const {
  ServerState state{.reason = frontend_->NotReady()};
  if (recoveries_ != nullptr) state.recoveries = recoveries_();
  const bool recovers = std::any_of(state.recoveries.begin(), state.recoveries.end(),
                                    [](const Recovery& one) { return !one.phase.empty(); });
  if (draining_) {
    state.word = "draining";
  } else if (!state.reason.empty()) {
    state.word = recovers ? "recovering" : "stalled";
  }
  return state;
}

void HttpApi::Status(Call call) {
  Beside(call, [this, exchange = call.exchange] {
    v1::Model model;
    const absl::Status status = frontend_->DescribeModel(&model);
    const auto compute_ms =
        stage_loads_ == nullptr ? std::vector<std::optional<double>>() : stage_loads_();
    HttpResponse response =
        status.ok() ? Json(StatusJson(model, compute_ms, State())) : ErrorResponse(status);
    response.fields.emplace_back("Cache-Control", "no-store");
    exchange->Respond(std::move(response));
  });
}

std::string HttpApi::IdOf(const ApiRequest& request, const Call& call) {
  return request.request_id().empty() ? call.request_id : request.request_id();
}

absl::StatusOr<ApiRequest> HttpApi::ParseResponse(const Call& call) {
  SC_ASSIGN_OR_RETURN(ApiRequest request, ParseResponsesRequest(call.request.body));
  SC_RETURN_IF_ERROR(ContinueResponse(responses_, call.caller, &frontend_->memory(),
                                      "resp_" + IdOf(request, call), request));
  return request;
}

void HttpApi::BeginCompletion(Call call, ParseFunction parse) {
  const std::shared_ptr<Exchange> exchange = call.exchange;
  const ErrorForm form = call.form;
  const absl::Status posted = frontend_->Post([this, parse, call = std::move(call)]() mutable {
    absl::StatusOr<ApiRequest> request = (this->*parse)(call);
    absl::Status good =
        request.ok() ? CheckChoices(*request, frontend_->max_choices()) : request.status();
    if (good.ok()) good = call.caller.TakeChoices(request->n_prompts() * request->n());
    if (!good.ok()) return call.exchange->Respond(ErrorResponse(good, call.form));
    // A resumable stream must run even if the client is gone: it may reconnect.
    if (call.exchange->is_gone() && !request->resumable) return;
    request->arrival = {.time = call.request.arrived,
                        .traceparent = call.request.traceparent,
                        .caller = call.caller};
    const std::string id = IdOf(*request, call);
    CompletionCall::Begin(frontend_, *std::move(request), id, call.request.body, call.exchange,
                          std::move(call.request.body_lease));
  });
  if (!posted.ok()) exchange->Respond(ErrorResponse(posted, form));
}

void HttpApi::Completions(Call call) {
  BeginCompletion(std::move(call), &HttpApi::Parse<ParseCompletionRequest>);
}

void HttpApi::ChatCompletions(Call call) {
  BeginCompletion(std::move(call), &HttpApi::Parse<ParseChatRequest>);
}

void HttpApi::Responses(Call call) { BeginCompletion(std::move(call), &HttpApi::ParseResponse); }

absl::StatusOr<std::string> HttpApi::KeptJson(const Call& call, MemoryBudget::Lease& lease) {
  const std::string& query = call.request.query;
  if (QueryValue(query, "stream") == "true") {
    return absl::InvalidArgumentError("stream: a kept response is not offered as a stream");
  }
  std::string_view name = std::string_view(call.request.path).substr(sizeof kResponsesPrefix - 1);
  const bool wants_input = name.ends_with(kInputItems);
  if (wants_input) name.remove_suffix(kInputItems.size());
  SC_ASSIGN_OR_RETURN(KeptResponse kept, responses_.Get(call.caller, PercentDecoded(name), lease));
  if (wants_input) return InputItemsJson(kept, query);
  return std::move(kept.json);
}

void HttpApi::ReadResponse(Call call) {
  const std::shared_ptr<Exchange> exchange = call.exchange;
  const absl::Status posted = frontend_->Post([this, call = std::move(call)] {
    MemoryBudget::Lease lease(&frontend_->memory());
    absl::StatusOr<std::string> body = KeptJson(call, lease);
    HttpResponse response = body.ok() ? Json(*std::move(body)) : ErrorResponse(body.status());
    response.memory = std::move(lease);
    call.exchange->Respond(std::move(response));
  });
  if (!posted.ok()) exchange->Respond(ErrorResponse(posted));
}

void HttpApi::DeleteResponse(Call call) {
  const std::string id =
      PercentDecoded(std::string_view(call.request.path).substr(sizeof kResponsesPrefix - 1));
  const absl::Status deleted = responses_.Delete(call.caller, id);
  if (!deleted.ok()) return call.exchange->Respond(ErrorResponse(deleted));
  call.exchange->Respond(Json(boost::json::serialize(
      boost::json::object{{"id", id}, {"object", "response"}, {"deleted", true}})));
}

void HttpApi::Messages(Call call) {
  if (!call.request.anthropic_beta.empty()) {
    NoteDropped("the header anthropic-beta: " + call.request.anthropic_beta);
  }
  BeginCompletion(std::move(call), &HttpApi::Parse<ParseMessagesRequest>);
}

void HttpApi::CountTokens(Call call) { AnswerText(std::move(call), AnswerCountTokens); }

void HttpApi::ReadStream(Call call) {
  const std::string id = StreamId(call.request.path.substr(sizeof kStreamsPrefix - 1));
  const absl::StatusOr<uint64_t> from = ReadFrom(call.request);
  if (!from.ok()) return call.exchange->Respond(ErrorResponse(from.status()));
  auto reader =
      frontend_->streams().Read(StreamOwner(StreamProtocol::kHttp, call.caller), id, *from);
  if (!reader.ok()) return call.exchange->Respond(ErrorResponse(reader.status()));
  RelayStream(*std::move(reader), call.exchange, frontend_->NextLane());
}

void HttpApi::CancelStream(Call call) {
  const std::string id = StreamId(call.request.path.substr(sizeof kStreamsPrefix - 1));
  const absl::Status cancelled =
      frontend_->streams().Cancel(StreamOwner(StreamProtocol::kHttp, call.caller), id);
  if (!cancelled.ok()) return call.exchange->Respond(ErrorResponse(cancelled));
  call.exchange->Respond(Json(boost::json::serialize(
      boost::json::object{{"id", id}, {"object", "stream"}, {"deleted", true}})));
}

void HttpApi::AnswerText(Call call, AnswerFunction answer) {
  const std::shared_ptr<Exchange> exchange = call.exchange;
  const ErrorForm form = call.form;
  const absl::Status posted = frontend_->Post([this, answer, call = std::move(call)] {
    if (call.exchange->is_gone()) return;
    const absl::StatusOr<std::string> body = answer(*frontend_, call.request.body);
    call.exchange->Respond(body.ok() ? Json(*body) : ErrorResponse(body.status(), call.form));
  });
  if (!posted.ok()) exchange->Respond(ErrorResponse(posted, form));
}

template <typename Form, typename Response>
void HttpApi::BeginPooled(Call call, absl::StatusOr<Form> (*parse)(std::string_view body),
                          FormatFunction<Form, Response> format) {
  const std::shared_ptr<Exchange> exchange = call.exchange;
  const absl::Status posted =
      frontend_->Post([this, parse, format, call = std::move(call)]() mutable {
        if (call.exchange->is_gone()) return;
        absl::StatusOr<Form> parsed = parse(call.request.body);
        if (!parsed.ok()) return call.exchange->Respond(ErrorResponse(parsed.status()));
        const auto form = std::make_shared<const Form>(*std::move(parsed));
        std::string id = form->request.request_id();
        if (id.empty()) id = call.request_id;
        const std::shared_ptr<PooledCall> pooled = MakePooled(
            frontend_, std::shared_ptr<const decltype(Form::request)>(form, &form->request), id,
            {.time = call.request.arrived,
             .traceparent = call.request.traceparent,
             .caller = call.caller},
            PooledAnswerer<Form, Response>{.exchange = call.exchange,
                                           .body_lease = std::move(call.request.body_lease),
                                           .form = form,
                                           .format = format,
                                           .model_name = frontend_->model().name,
                                           .request_id = id});
        if (pooled == nullptr) return;
        call.exchange->OnGone([pooled] { pooled->Cancel(); });
        pooled->Start();
      });
  if (!posted.ok()) exchange->Respond(ErrorResponse(posted));
}

void HttpApi::Embeddings(Call call) {
  BeginPooled<EmbeddingsForm, v1::EmbedResponse>(std::move(call), ParseEmbeddings, EmbeddingsJson);
}

void HttpApi::Rerank(Call call) {
  BeginPooled<RerankForm, v1::RerankResponse>(std::move(call), ParseRerank, RerankJson);
}

void HttpApi::Tokenize(Call call) { AnswerText(std::move(call), AnswerTokenize); }

void HttpApi::Detokenize(Call call) { AnswerText(std::move(call), AnswerDetokenize); }

}  // namespace stagecoach::router::http
