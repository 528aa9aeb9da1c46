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

#include "absl/functional/function_ref.h"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/json_fields.h"

namespace stagecoach::router::http {

// The members name, description, `parameters_name` and strict of a client's tool, as a function of
// /v1/chat/completions. `name`: in place of the tool's own, unless it is empty.
std::string FunctionJson(const boost::json::object& tool, const char* parameters_name,
                         std::string_view name = {});

// Collects the tools of one request. One thread.
class FunctionTools {
 public:
  // Adds the client's tool at `place` of its list: `function` is from FunctionJson. `deferred`: the
  // model may call the tool, but the template does not get it.
  void Add(size_t place, std::string_view function, bool deferred = false);
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

// Calls `read` for each tool of the field "tools" with the tool's fields, its place in the list and
// the tool. Returns false at one that is no object, and leaves the reason in fields.status().
bool ForEachTool(
    JsonFields& fields,
    absl::FunctionRef<void(JsonFields& tool_fields, size_t place, const boost::json::object& tool)>
        read);

}  // namespace stagecoach::router::http
