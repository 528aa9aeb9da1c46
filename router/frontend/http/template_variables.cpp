#include "router/frontend/http/template_variables.h"

#include <boost/json.hpp>

#include "router/text/client_json.h"

namespace stagecoach::router::http {

namespace json = boost::json;

void ReadTemplateVariables(JsonFields& fields, const std::vector<TemplateVariable>& more,
                           v1::ChatRequest& chat) {
  const json::object* given = fields.Object("chat_template_kwargs");
  json::object variables(ClientJsonMemory());
  if (given != nullptr) variables = *given;
  const auto add = [&](const std::string& name, const json::value& value,
                       const std::string& field) {
    const auto [at, is_new] = variables.emplace(name, value);
    if (!is_new && at->value() != value) {
      fields.Refuse(field, "has another value in chat_template_kwargs");
    }
  };
  constexpr char kThinking[] = "enable_thinking", kEffort[] = "reasoning_effort";
  if (const auto think = fields.Bool(kThinking)) add(kThinking, *think, kThinking);
  if (const auto effort = fields.String(kEffort)) add(kEffort, json::value(*effort), kEffort);
  for (const TemplateVariable& one : more) add(one.name, one.value, one.field);
  if (given != nullptr || !variables.empty()) {
    chat.set_chat_template_kwargs(json::serialize(variables));
  }
}

}  // namespace stagecoach::router::http
