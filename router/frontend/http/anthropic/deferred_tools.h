// Tools that a client of Anthropic's API declares with defer_loading: the model does not see them
// before a tool's result refers to them.
#pragma once

#include <boost/json/fwd.hpp>
#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace stagecoach::router::http {

// The definition of a tool takes the place of the reference. The tools in front of the conversation
// stay the same, so the prefix cache still has it. One thread.
class DeferredTools {
 public:
  // `tools`: the field of the request, or null. It outlives this.
  explicit DeferredTools(const boost::json::array* tools) : tools_(tools) {}

  // What the model reads in place of a reference to the tool `name`. From now on the tool is
  // offered.
  std::string Load(std::string_view name);

  bool is_loaded(std::string_view name) const { return loaded_.contains(name); }

 private:
  const boost::json::array* const tools_;
  std::set<std::string, std::less<>> loaded_;
};

}  // namespace stagecoach::router::http
