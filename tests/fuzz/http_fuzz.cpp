// Bytes from a client: requests that arrive in pieces, and then their bodies in each API. The first
// byte gives the size of the pieces.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "router/frontend/http/anthropic/messages_request.h"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/request_parser.h"
#include "router/frontend/http/responses/responses_request.h"
#include "tests/fuzz/fuzz.h"

namespace {

using stagecoach::router::http::RequestParser;

void ReadBody(const std::string& body) {
  using namespace stagecoach::router::http;
  for (const auto parse :
       {ParseCompletionRequest, ParseChatRequest, ParseMessagesRequest, ParseResponsesRequest}) {
    const auto request = parse(body);
    stagecoach::fuzz::Accept(request.status());
    if (request.ok() && request->n_prompts() == 0) std::abort();
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach::router::http;
  if (size == 0) return 0;
  const size_t piece = size_t(data[0]) + 1;
  std::string_view rest = stagecoach::fuzz::Text(data + 1, size - 1);
  HttpLimits limits;
  limits.max_header_bytes = 4096;
  limits.max_body_bytes = 32768;
  stagecoach::router::MemoryBudget budget(1 << 20);
  RequestParser parser(limits, &budget);
  std::string held;
  while (true) {
    const size_t consumed = parser.Feed(held);
    if (consumed > held.size()) std::abort();
    held.erase(0, consumed);
    if (parser.state() == RequestParser::State::kFailed) {
      if (parser.failure().status < 400 || parser.failure().message.empty()) std::abort();
      return 0;
    }
    if (parser.state() == RequestParser::State::kComplete) {
      parser.keep_alive();
      const HttpRequest request = parser.Take();
      if (request.body.size() > limits.max_body_bytes) std::abort();
      ReadBody(request.body);
    } else if (consumed == 0) {
      if (rest.empty()) return 0;
      held += rest.substr(0, piece);
      rest.remove_prefix(std::min(piece, rest.size()));
      if (held.size() > limits.max_header_bytes + piece) std::abort();
    }
  }
}
