// What the HTTP server answers: paths, keys, and which part of the house each request goes to.
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
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/cors.h"
#include "router/frontend/http/exchange.h"
#include "router/frontend/http/http_metrics.h"
#include "router/frontend/http/http_server.h"

namespace stagecoach::router {
class Frontend;
}

namespace stagecoach::router::http {

// Thread-safe. Outlives every exchange.
class HttpApi {
 public:
  using Sources = std::vector<std::shared_ptr<prometheus::Collectable>>;

  // `frontend` outlives this. `sources` are what /metrics shows, `stage_loads` (null: unknown) what
  // /status tells of each stage.
  HttpApi(Frontend* frontend, std::shared_ptr<Access> access, std::vector<std::string> cors_origins,
          Sources sources, StageLoads stage_loads);

  // Both on the event loop: what takes time goes to other threads.
  // By the request's header, `head`: who may come in, and whether it is worth receiving. Takes from
  // the key's rate.
  Admission Admit(const HttpRequest& head);
  // REQUIRES: Admit let the request in.
  void Handle(HttpRequest request, Admission admission, std::shared_ptr<Exchange> exchange);

  // See Cors. Before the first request.
  void GuardLoopback(std::string own_name) { cors_.GuardLoopback(std::move(own_name)); }

  // /ready says no from now on.
  void SetDraining() { draining_ = true; }

  HttpMetrics& metrics() { return metrics_; }

 private:
  // One request on its way through Handle.
  struct Call {
    std::shared_ptr<Exchange> exchange;  // first, to go last: the server's end waits for it
    HttpRequest request;
    std::string request_id;
    Caller caller;
  };
  struct Route {
    const char* method;
    const char* path;
    void (HttpApi::*handler)(Call call);
    bool needs_key;
    bool is_prefix = false;  // what follows `path` is a name
  };

  // Null when there is none; `methods` are then those that the path has, if any: "GET, HEAD".
  static const Route* FindRoute(const HttpRequest& request, std::string& methods);
  // What is answered without the body; absent: it is to be received.
  std::optional<HttpResponse> AnswerToHead(const HttpRequest& head, Caller& caller);
  // Who sends a request that may come in.
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
  void Tokenize(Call call);
  void Detokenize(Call call);

  // On prompt threads.
  using ParseFunction = absl::StatusOr<ApiRequest> (*)(std::string_view body);
  void BeginCompletion(Call call, ParseFunction parse);
  using AnswerFunction = absl::StatusOr<std::string> (*)(const Frontend&, std::string_view body);
  void AnswerText(Call call, AnswerFunction answer);
  // On a thread of its own: for what waits for others, and must work while prompts are queued.
  void Beside(const Call& call, WorkQueue::Task task);

  Frontend* const frontend_;
  const std::shared_ptr<Access> access_;
  Cors cors_;
  HttpMetrics metrics_;
  Sources sources_;
  const StageLoads stage_loads_;
  std::atomic<bool> draining_{false};
  WorkQueue beside_{1};  // last: its thread ends first
};

}  // namespace stagecoach::router::http
