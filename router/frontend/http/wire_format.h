// Serializes responses.
#pragma once

#include <string>
#include <string_view>

#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

enum class BodyFraming {
  kLength,   // Content-Length gives the size of response.body
  kChunked,  // Transfer-Encoding: chunked
  kToEnd,    // the body ends when the connection closes
};

// Status line and header fields, with Date and Connection; not the body.
std::string ResponseHead(const HttpResponse& response, const HeaderFields& more_fields,
                         BodyFraming framing, bool keep_alive);

// Appends one chunk of a chunked body. Empty data adds nothing, because an empty chunk ends the
// body.
void AppendChunk(std::string& out, std::string_view data);

inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace stagecoach::router::http
