// Reads fields for structured output: OpenAI's response_format, and the equivalent fields of other
// servers.
#pragma once

#include <string>

#include "router/frontend/http/api_request.h"
#include "router/frontend/http/json_fields.h"

namespace stagecoach::router::http {

// Reads response_format, structured_outputs, guided_*, and other servers' names for the same, of
// which a request may have one. Sets sampling.grammar, and request.grammar_field to the field's
// name. Errors are in fields.status(); errors in the grammar itself appear when it is compiled.
void ReadGrammar(JsonFields& fields, v1::SamplingParams& sampling, ApiRequest& request);

// Reads the object `name` of `fields`, which is at `path`, in the form of response_format: for APIs
// that have it elsewhere.
void ReadResponseFormat(JsonFields& fields, const std::string& path, const char* name,
                        v1::SamplingParams& sampling, ApiRequest& request);

}  // namespace stagecoach::router::http
