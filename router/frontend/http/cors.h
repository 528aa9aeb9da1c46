// Which web pages may use the server from a browser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

class Cors {
 public:
  // "https://chat.example.org", or "*" for every page.
  explicit Cors(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  // For every response to a request with this Origin. Without them a browser keeps the response
  // from the page.
  HeaderFields Fields(std::string_view origin) const;
  // In addition, for the OPTIONS request by which a browser asks first.
  static HeaderFields PreflightFields();

  // PERMISSION_DENIED for a request that a page elsewhere made a browser send without asking: the
  // page could not read the answer, but keep the model busy.
  absl::Status CheckPost(const HttpRequest& request) const;

 private:
  bool Allows(std::string_view origin) const;

  const std::vector<std::string> origins_;
};

}  // namespace stagecoach::router::http
