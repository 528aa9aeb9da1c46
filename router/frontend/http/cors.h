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

  // The server needs no key, and only this machine reaches it, as `own_name`. A page of any site
  // may still make a browser here ask it, under a name that the site's DNS leads to a loopback
  // address. Before all other calls.
  void GuardLoopback(std::string own_name) {
    is_guarded_ = true;
    own_name_ = std::move(own_name);
  }

  // For every response to a request with this Origin. Without them a browser keeps the response
  // from the page.
  HeaderFields Fields(std::string_view origin) const;
  // In addition, for the OPTIONS request by which a browser asks first.
  static HeaderFields PreflightFields();

  // A guarded server: PERMISSION_DENIED for a Host that is neither an address nor a name of this
  // machine, nor the host of an origin that is allowed; and for an Origin of neither this machine
  // nor the Host, that is not allowed.
  absl::Status CheckSource(const HttpRequest& request) const;

  // PERMISSION_DENIED for a request that a page elsewhere made a browser send without asking: the
  // page could not read the answer, but keep the model busy.
  absl::Status CheckPost(const HttpRequest& request) const;

 private:
  bool Allows(std::string_view origin) const;
  bool IsOwnHost(std::string_view host) const;

  const std::vector<std::string> origins_;
  bool is_guarded_ = false;
  std::string own_name_;
};

}  // namespace stagecoach::router::http
