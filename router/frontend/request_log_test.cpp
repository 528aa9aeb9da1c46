#include "router/frontend/request_log.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::router {
namespace {

TEST_CASE("a request that has ended is one line of names and values") {
  EndedRequest request{.tenant = "blue",
                       .api = "/v1/messages",
                       .n_prompt_tokens = 40,
                       .n_cached_tokens = 32,
                       .n_output_tokens = 7,
                       .n_choices = 1,
                       .ttft_ms = 12.4,
                       .duration_ms = 99.6,
                       .finish = "stop",
                       .status = absl::OkStatus()};
  CHECK(RequestLine(request) ==
        "tenant=blue api=/v1/messages prompt_tokens=40 cached_tokens=32 output_tokens=7 choices=1 "
        "ttft_ms=12 duration_ms=100 finish=stop status=OK");
  request = {.api = "grpc", .status = absl::CancelledError("the client is gone")};
  CHECK(RequestLine(request) ==
        "tenant=- api=grpc prompt_tokens=0 cached_tokens=0 output_tokens=0 choices=0 ttft_ms=- "
        "duration_ms=0 finish=- status=CANCELLED error=\"the client is gone\"");
}

}  // namespace
}  // namespace stagecoach::router
