// The tools of APIs that list tools in another form than /v1/chat/completions, and that also have
// tools which only their own servers can run.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "router/frontend/http/api_request.h"
#include "router/frontend/http/json_fields.h"

namespace stagecoach::router::http {

// Collects the tools of one request. One thread.
class FunctionTools {
 public:
  // Adds the client's tool at `place` of its list: the members name, description, `parameters_name`
  // and strict of `tool`.
  void Add(size_t place, const boost::json::object& tool, const char* parameters_name);
  // Leaves out a tool of a type that this server does not offer. `name` may be empty.
  void Drop(std::string_view type, std::string_view name);

  // Writes the tools and `choice` into `request`. Problems are in fields.status(): the choice
  // demands a tool that was left out.
  void Finish(JsonFields& fields, const v1::ToolChoice& choice, ApiRequest& request) const;

 private:
  std::string array_;  // in the form of /v1/chat/completions, without the bracket at the end
  std::vector<size_t> places_;
  std::set<std::string, std::less<>> dropped_;  // names, and the types of tools without a name
};

}  // namespace stagecoach::router::http
