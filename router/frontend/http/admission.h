// What is decided by a request's header, before any of its body is taken in.
#pragma once

#include <optional>
#include <string>

#include "router/access/caller.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

struct Admission {
  std::string request_id;
  HeaderFields fields;  // of whatever response there is
  Caller caller;
  std::optional<HttpResponse> answer;  // a refusal, as a rule; the body is not looked at
};

}  // namespace stagecoach::router::http
