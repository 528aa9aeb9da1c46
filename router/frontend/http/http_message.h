// HTTP requests and responses as the handlers see them: no sockets, no parser.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "router/frontend/http/memory_budget.h"

namespace stagecoach::router::http {

struct HttpRequest {
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
  std::string method;   // "GET"
  std::string path;     // before the '?', as sent
  std::string query;    // behind it
  std::string version;  // "1.1" or "1.0"
  // Header fields that something here looks at; empty when absent.
  std::string host;
  std::string authorization;
  std::string content_type;
  std::string origin;
  std::string request_id;     // X-Request-Id
  std::string last_event_id;  // Last-Event-ID
  std::string traceparent;
  std::string body;
  MemoryBudget::Lease body_lease;  // what the body takes of the server's budget
};

using HeaderFields = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HeaderFields fields;  // further ones: no Content-Type, Content-Length, Connection, Date
};

// "Not Found"; empty for a number that is not used here.
const char* ReasonPhrase(int status);

}  // namespace stagecoach::router::http
