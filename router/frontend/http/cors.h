// Decides which web pages may use the server from a browser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

class Cors {
 public:
  // Allowed origins: "https://chat.example.org", or "*" for every page.
  explicit Cors(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  // Guards a server without keys and TLS that only this machine reaches, as `own_name`. Without the
  // guard, a page of any site can make a local browser send requests to it, through a DNS name that
  // resolves to a loopback address (DNS rebinding). Call it before all other methods.
  void GuardLoopback(std::string own_name) {
    is_guarded_ = true;
    own_name_ = std::move(own_name);
  }

  // Header fields for every response to a request with this Origin. Without them, the browser hides
  // the response from the page.
  HeaderFields Fields(std::string_view origin) const;
  // Additional fields for the OPTIONS preflight request of a browser.
  static HeaderFields PreflightFields();

  // For a guarded server. PERMISSION_DENIED if the Host is neither an address, nor a name of this
  // machine, nor the host of an allowed origin; or if the Origin is not allowed and is neither this
  // machine nor the Host.
  absl::Status CheckSource(const HttpRequest& request) const;

  // PERMISSION_DENIED for a request that a page of another origin made the browser send without a
  // preflight. The page cannot read the answer, but could keep the model busy.
  absl::Status CheckPost(const HttpRequest& request) const;

 private:
  bool Allows(std::string_view origin) const;
  bool IsOwnHost(std::string_view host) const;

  const std::vector<std::string> origins_;
  bool is_guarded_ = false;
  std::string own_name_;
};

}  // namespace stagecoach::router::http
