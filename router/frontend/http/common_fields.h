// The fields about a request as a whole, which all APIs share.
#pragma once

#include "router/frontend/http/json_fields.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// model, request_id, priority, cache_salt, and skip_special_tokens where text is generated. Errors
// are in fields.status().
void ReadCommon(JsonFields& fields, v1::GenerateRequest& request);
void ReadCommon(JsonFields& fields, v1::ChatRequest& request);
void ReadCommon(JsonFields& fields, v1::EmbedRequest& request);
void ReadCommon(JsonFields& fields, v1::RerankRequest& request);

}  // namespace stagecoach::router::http
