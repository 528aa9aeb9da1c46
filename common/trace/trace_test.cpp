#include "common/trace/trace.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach {
namespace {

constexpr char kGood[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST_CASE("a valid traceparent is parsed") {
  const auto context = ParseTraceparent(kGood);
  REQUIRE(context);
  CHECK(context->sampled);
  CHECK(context->trace_id[0] == 0x0a);
  CHECK(context->span_id[7] == 0x31);
  CHECK_FALSE(ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")->sampled);
}

TEST_CASE("an invalid traceparent is ignored") {
  for (const char* text : {
           "",
           "00",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
           "00-00000000000000000000000000000000-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
           "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
           "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
           "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
       }) {
    INFO(text);
    CHECK_FALSE(ParseTraceparent(text));
  }
  CHECK(ParseTraceparent("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"));
}

TEST_CASE("a sampling ratio takes its share") {
  int n_sampled = 0;
  for (int i = 0; i < 4000; ++i) n_sampled += SampledByRatio(NewTraceId(), 0.25);
  CHECK(n_sampled > 800);
  CHECK(n_sampled < 1200);
  CHECK(SampledByRatio(NewTraceId(), 1));
  CHECK_FALSE(SampledByRatio(NewTraceId(), 0));
  CHECK(NewSpanId() != NewSpanId());
}

}  // namespace
}  // namespace stagecoach
