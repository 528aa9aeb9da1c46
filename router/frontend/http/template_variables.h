// Variables of the chat template that a request sets.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <vector>

#include "router/frontend/http/json_fields.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// A variable that follows from a field of another name.
struct TemplateVariable {
  std::string name;
  boost::json::value value;
  std::string field;  // for messages
};

// Reads chat_template_kwargs, and template variables that have their own field, and adds `more`.
// Errors, such as two values for one variable, are in fields.status().
void ReadTemplateVariables(JsonFields& fields, const std::vector<TemplateVariable>& more,
                           v1::ChatRequest& chat);

}  // namespace stagecoach::router::http
