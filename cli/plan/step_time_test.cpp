#include "cli/plan/step_time.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

namespace stagecoach::plan {
namespace {

using Catch::Matchers::WithinRel;

constexpr double kWeights = 1e9;
const Gpu kH200 = *FindGpu("H200");

StageWork Plain() { return {.every_row = {.bytes = uint64_t(2 * kWeights)}, .weights = kWeights}; }

StageWork Packed() {
  return {.every_row = {.bytes = uint64_t(kWeights / 2), .n_quantized = uint64_t(kWeights)},
          .weights = kWeights};
}

// 64 experts in one layer, of which a row uses 4.
StageWork Experts() {
  return {.experts = {.bytes = uint64_t(2 * kWeights)},
          .expert_weights = kWeights * 4 / 64,
          .used_share = 4.0 / 64,
          .n_expert_layers = 1};
}

TEST_CASE("a step of few rows takes as long as reading the weights, one of many as multiplying") {
  const double few = DecodeSeconds(Plain(), 16, 0, kH200);
  CHECK(few == DecodeSeconds(Plain(), 64, 0, kH200));
  CHECK(few > 2 * kWeights / kH200.bytes_per_s);
  const double many = DecodeSeconds(Plain(), 1024, 0, kH200);
  CHECK_THAT(DecodeSeconds(Plain(), 2048, 0, kH200), WithinRel(2 * many, 1e-9));
}

TEST_CASE("quantized weights make steps of few rows faster, and steps of 256 rows slower") {
  CHECK(DecodeSeconds(Packed(), 1, 0, kH200) < 0.6 * DecodeSeconds(Plain(), 1, 0, kH200));
  CHECK(DecodeSeconds(Packed(), 256, 0, kH200) > DecodeSeconds(Plain(), 256, 0, kH200));
}

TEST_CASE("a GPU that multiplies FP8 computes prompts faster than in 16 bits") {
  StageWork fp8 = Packed();
  fp8.every_row.bytes = uint64_t(kWeights);
  const double expanded = PromptSeconds(fp8, 8192, 0, kH200);
  CHECK(expanded > PromptSeconds(Plain(), 8192, 0, kH200));
  fp8.multiplies_fp8 = true;
  CHECK_THAT(PromptSeconds(Plain(), 8192, 0, kH200) / PromptSeconds(fp8, 8192, 0, kH200),
             WithinRel(1.4, 1e-9));
}

TEST_CASE("a step reads the experts that at least one row uses") {
  CHECK_THAT(BytesRead(Experts(), 1), WithinRel(2 * kWeights * 4 / 64, 1e-9));
  CHECK_THAT(BytesRead(Experts(), 2), WithinRel(2 * kWeights * (1 - 60.0 * 60 / 64 / 64), 1e-9));
  CHECK_THAT(BytesRead(Experts(), 1000), WithinRel(2 * kWeights, 1e-9));
}

TEST_CASE("all experts in use take as long again for further rows as these take to multiply") {
  const double all = DecodeSeconds(Experts(), 1000, 0, kH200);
  const double twice = DecodeSeconds(Experts(), 2000, 0, kH200);
  const double flops = 2 * Experts().expert_weights * 1000;
  CHECK(twice - all > flops / kH200.bf16_flops_per_s);
  CHECK(twice - all < 2 * flops / kH200.bf16_flops_per_s);
}

TEST_CASE("a window bounds the keys that a row reads") {
  StageWork work = Plain();
  work.attention = {{.window = {}, .bytes_a_token = 4096, .flops_a_key = 16384}};
  const double at_1k = DecodeSeconds(work, 64, 1024, kH200);
  CHECK(DecodeSeconds(work, 64, 4096, kH200) > at_1k);
  CHECK(PromptSeconds(work, 8192, 4096, kH200) > PromptSeconds(work, 8192, 1024, kH200));
  work.attention[0].window = 1024;
  CHECK(DecodeSeconds(work, 64, 4096, kH200) == at_1k);
}

TEST_CASE("reading an FP8 cache takes more than half as long as reading one of 16 bits") {
  const auto cache_seconds = [](double bytes_a_token, bool is_fp8) {
    StageWork work;
    work.kv_is_fp8 = is_fp8;
    work.attention = {{.window = {}, .bytes_a_token = bytes_a_token}};
    return DecodeSeconds(work, 64, 1024, kH200);
  };
  const double share = cache_seconds(2048, true) / cache_seconds(4096, false);
  CHECK(share > 0.5);
  CHECK(share < 0.65);  // cuda_fp8_cache.jsonl: 0.624
}

TEST_CASE("states of recurrent layers are read and written") {
  StageWork work;
  work.state_bytes = 1e8;
  CHECK(DecodeSeconds(work, 64, 0, kH200) > 2 * 64 * 1e8 / kH200.bytes_per_s);
}

}  // namespace
}  // namespace stagecoach::plan
