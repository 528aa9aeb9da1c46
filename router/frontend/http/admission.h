// Decisions from a request's header, before its body is read.
#pragma once

#include <optional>
#include <string>

#include "router/access/caller.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

struct Admission {
  std::string request_id;
  HeaderFields fields;  // for every response to this request
  Caller caller;
  // If set, usually a refusal: the answer without reading the body.
  std::optional<HttpResponse> answer;
};

}  // namespace stagecoach::router::http
