// What a client says about the form of its text: OpenAI's response_format, and the fields that
// other servers have for the same.
#pragma once

#include "router/frontend/http/api_request.h"
#include "router/frontend/http/json_fields.h"

namespace stagecoach::router::http {

// response_format, structured_outputs, guided_* and other servers' names for the same, of which
// there may be one, as sampling.grammar;
// the field it came from as request.grammar_field. Problems are in fields.status(); what is wrong
// with the grammar itself is found when it is compiled.
void ReadGrammar(JsonFields& fields, v1::SamplingParams& sampling, ApiRequest& request);

}  // namespace stagecoach::router::http
