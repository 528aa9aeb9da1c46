// The handlers of the HTTP server: paths, keys, and the component that serves each request.
#pragma once

#include <prometheus/collectable.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/work_queue.h"
#include "router/access/access.h"
#include "router/frontend/http/admission.h"
#include "router/frontend/http/api_error.h"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/cors.h"
#include "router/frontend/http/exchange.h"
#include "router/frontend/http/http_metrics.h"
#include "router/frontend/http/http_server.h"
#include "router/frontend/http/model_json.h"
#include "router/frontend/http/responses/response_store.h"

namespace stagecoach::router {
class Frontend;
}

namespace stagecoach::router::http {

// Thread-safe. Outlives every exchange.
class HttpApi {
 public:
  using Sources = std::vector<std::shared_ptr<prometheus::Collectable>>;

  // `frontend` outlives this. /metrics shows `sources`; /status shows `stage_loads` per stage
  // (null: unknown) and `recoveries`
  // (null: none).
  HttpApi(Frontend* frontend, std::shared_ptr<Access> access, std::vector<std::string> cors_origins,
          Sources sources, StageLoads stage_loads, Recoveries recoveries = nullptr,
          const ResponseLimits& responses = {});

  // Admit and Handle run on the event loop; slow work goes to other threads.
  //
  // Decides from the header, `head`, whether the caller is admitted and whether the body is worth
  // receiving. Takes from the key's rate.
  Admission Admit(const HttpRequest& head);
  // REQUIRES: Admit has admitted the request.
  void Handle(HttpRequest request, Admission admission, std::shared_ptr<Exchange> exchange);

  // See Cors. Call it before the first request.
  void GuardLoopback(std::string own_name) { cors_.GuardLoopback(std::move(own_name)); }

  // /ready fails from now on.
  void SetDraining() { draining_ = true; }

  HttpMetrics& metrics() { return metrics_; }

 private:
  // One request that Handle processes.
  struct Call {
    // First, so destroyed last: the server's shutdown waits for it.
    std::shared_ptr<Exchange> exchange;
    HttpRequest request;
    std::string request_id;
    Caller caller;
    ErrorForm form;
  };
  struct Route {
    const char* method;
    const char* path;
    void (HttpApi::*handler)(Call call);
    bool needs_key;
    bool is_prefix = false;  // a name follows `path`
  };

  // Null if no route matches; `methods` then lists the methods of the path, if any: "GET, HEAD".
  static const Route* FindRoute(const HttpRequest& request, std::string& methods);
  // The answer that needs no body. Absent: receive the body.
  std::optional<HttpResponse> AnswerToHead(const HttpRequest& head, Caller& caller);
  // The caller of an admitted request.
  absl::StatusOr<Caller> FindCaller(const HttpRequest& head);

  void Page(Call call);
  void OpenApi(Call call);
  void Health(Call call);
  void Ready(Call call);
  void Version(Call call);
  void Metrics(Call call);
  void Status(Call call);
  void Models(Call call);
  void Model(Call call);
  void Completions(Call call);
  void ChatCompletions(Call call);
  void ReadStream(Call call);
  void CancelStream(Call call);
  void Responses(Call call);
  void ReadResponse(Call call);
  void DeleteResponse(Call call);
  void Messages(Call call);
  void CountTokens(Call call);
  void Embeddings(Call call);
  void Rerank(Call call);
  void Tokenize(Call call);
  void Detokenize(Call call);

  // Run on prompt threads.
  using ParseFunction = absl::StatusOr<ApiRequest> (HttpApi::*)(const Call& call);
  template <absl::StatusOr<ApiRequest> (*parse)(std::string_view body)>
  absl::StatusOr<ApiRequest> Parse(const Call& call) {
    return parse(call.request.body);
  }
  absl::StatusOr<ApiRequest> ParseResponse(const Call& call);
  // What GET of a kept response, or of its input, returns; `lease` pays for it.
  absl::StatusOr<std::string> KeptJson(const Call& call, MemoryBudget::Lease& lease);
  void BeginCompletion(Call call, ParseFunction parse);
  // The request's id: of its body, or else of its header.
  static std::string IdOf(const ApiRequest& request, const Call& call);
  template <typename Form, typename Response>
  using FormatFunction = std::string (*)(const Form& form, const std::string& model_name,
                                         const std::string& request_id, const Response& response);
  template <typename Form, typename Response>
  void BeginPooled(Call call, absl::StatusOr<Form> (*parse)(std::string_view body),
                   FormatFunction<Form, Response> format);
  using AnswerFunction = absl::StatusOr<std::string> (*)(const Frontend&, std::string_view body);
  void AnswerText(Call call, AnswerFunction answer);
  // Runs `task` on a separate thread: for work that waits for other threads and must run while
  // prompts are queued.
  void Beside(const Call& call, WorkQueue::Task task);
  ServerState State() const;

  Frontend* const frontend_;
  const std::shared_ptr<Access> access_;
  Cors cors_;
  HttpMetrics metrics_;
  Sources sources_;
  const StageLoads stage_loads_;
  const Recoveries recoveries_;
  ResponseStore responses_;
  std::atomic<bool> draining_{false};
  WorkQueue beside_{1, "http beside"};  // last member, so that its thread ends first
};

}  // namespace stagecoach::router::http
