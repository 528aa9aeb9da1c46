#include "router/frontend/http/wire_format.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <ctime>
#include <iterator>

namespace stagecoach::router::http {
namespace {

// The date in RFC 9110's format, formatted once per second.
const std::string& Date() {
  thread_local std::time_t made_at = 0;
  thread_local std::string date;
  const std::time_t now = std::time(nullptr);
  if (now != made_at) {
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 64> text;
    const size_t size =
        std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    date.assign(text.data(), size);
    made_at = now;
  }
  return date;
}

}  // namespace

std::string ResponseHead(const HttpResponse& response, const HeaderFields& more_fields,
                         BodyFraming framing, bool keep_alive) {
  fmt::memory_buffer head;
  const auto out = std::back_inserter(head);
  fmt::format_to(out, "HTTP/1.1 {} {}\r\nDate: {}\r\nConnection: {}\r\n", response.status,
                 ReasonPhrase(response.status), Date(), keep_alive ? "keep-alive" : "close");
  if (response.status != 204) {
    fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
    if (framing == BodyFraming::kLength) {
      fmt::format_to(out, "Content-Length: {}\r\n", response.body.size());
    } else if (framing == BodyFraming::kChunked) {
      fmt::format_to(out, "Transfer-Encoding: chunked\r\n");
    }
  }
  for (const HeaderFields* fields : {&more_fields, &response.fields}) {
    for (const auto& [name, value] : *fields) fmt::format_to(out, "{}: {}\r\n", name, value);
  }
  fmt::format_to(out, "\r\n");
  return fmt::to_string(head);
}

void AppendChunk(std::string& out, std::string_view data) {
  if (data.empty()) return;
  std::array<char, 16> size;
  const auto [end, error] = std::to_chars(size.begin(), size.end(), data.size(), 16);
  out.append(size.begin(), end);
  out += "\r\n";
  out += data;
  out += "\r\n";
}

}  // namespace stagecoach::router::http
