#include "router/frontend/http/common_fields.h"

#include "router/access/request_id.h"

namespace stagecoach::router::http {
namespace {

template <typename Request>
void Read(JsonFields& fields, Request& request) {
  request.set_model(fields.String("model").value_or(""));
  if (const auto id = fields.String("request_id")) {
    if (!IsFitRequestId(*id)) {
      fields.Refuse("request_id", "must be printable ASCII without spaces, at most 256 bytes");
    }
    request.set_request_id(*id);
  }
  if (const auto priority = fields.Integer("priority", kMinInt32, kMaxInt32)) {
    request.set_priority(static_cast<int32_t>(*priority));
  }
  if (const auto salt = fields.String("cache_salt")) request.set_cache_salt(*salt);
}

template <typename Request>
void ReadForText(JsonFields& fields, Request& request) {
  Read(fields, request);
  if (const auto skip = fields.Bool("skip_special_tokens")) request.set_skip_special_tokens(*skip);
}

}  // namespace

void ReadCommon(JsonFields& fields, v1::GenerateRequest& request) { ReadForText(fields, request); }

void ReadCommon(JsonFields& fields, v1::ChatRequest& request) { ReadForText(fields, request); }

void ReadCommon(JsonFields& fields, v1::EmbedRequest& request) { Read(fields, request); }

void ReadCommon(JsonFields& fields, v1::RerankRequest& request) { Read(fields, request); }

}  // namespace stagecoach::router::http
