// HTTP requests and responses for the handlers, independent of sockets and parser.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "router/access/memory_budget.h"

namespace stagecoach::router::http {

struct HttpRequest {
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
  std::string method;   // "GET"
  std::string path;     // before the '?', as sent
  std::string query;    // after the '?'
  std::string version;  // "1.1" or "1.0"
  // The header fields that the server uses; empty if absent.
  std::string host;
  std::string authorization;  // or "Bearer KEY" of X-Api-Key, if there is no Authorization
  std::string content_type;
  std::string origin;
  std::string request_id;  // X-Request-Id
  std::string anthropic_beta;
  std::string last_event_id;  // Last-Event-ID
  std::string traceparent;
  std::string body;
  MemoryBudget::Lease body_lease;  // the body's part of the server's memory budget
};

using HeaderFields = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  // Additional ones, without Content-Type, Content-Length, Connection and Date.
  HeaderFields fields;
  MemoryBudget::Lease memory;  // held until the client has the body
};

// "Not Found"; empty for a status that the server does not use.
const char* ReasonPhrase(int status);

}  // namespace stagecoach::router::http
