#include "cli/quantize/quantize_model.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <filesystem>
#include <string>

#include "cli/check/model_facts.h"
#include "common/encoding/rows.h"
#include "common/model/model_spec.h"
#include "common/temp_dir.h"
#include "worker/loader/check_checkpoint.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::quantize {
namespace {

using Catch::Matchers::ContainsSubstring;

std::string Golden(const std::string& name) {
  return std::string(STAGECOACH_GOLDEN_DATA) + "/" + name;
}

// All matrices of `a` equal those of `b`, quantized ones in code and scale.
void CheckEqual(worker::WeightSource& a, worker::WeightSource& b, const worker::WeightPlan& plan) {
  for (size_t i = 0; i < plan.requests.size(); ++i) {
    const worker::TensorRequest& request = plan.requests[i];
    CAPTURE(request.name);
    const auto encoding = a.encoding(i);
    REQUIRE(encoding == b.encoding(i));
    REQUIRE(encoding);
    if (request.is_vector) continue;
    const size_t n_bytes =
        static_cast<size_t>(request.rows) * RowBytes(*encoding, static_cast<size_t>(request.cols));
    CHECK(std::memcmp(a.StoredRows(i, 0, request.rows), b.StoredRows(i, 0, request.rows),
                      n_bytes) == 0);
  }
}

TEST_CASE("the copy has the weights that are made at load, in any number of files") {
  for (const char* name : {"qwen3", "qwen3-moe", "phi3"}) {
    for (const Code code : {Code::kFp8, Code::kInt8, Code::kInt4}) {
      CAPTURE(name, EncodingName(code));
      const ModelSpec spec = *ReadModelSpec(Golden(name));
      worker::StageWeights targets;
      const worker::WeightPlan plan = check::PlanWholeModel(spec, &targets);
      auto at_load = worker::OpenCheckpoint({Golden(name), "", code}, plan.requests);
      REQUIRE(at_load.ok());
      for (const uint64_t file_bytes : {uint64_t{1} << 30, uint64_t{20'000}}) {
        TempDir dir;
        const std::string out = dir.File("copy");
        const auto report = QuantizeModel(
            {.model = Golden(name), .out = out, .code = code, .file_bytes = file_bytes}, nullptr);
        INFO(report.status());
        REQUIRE(report.ok());
        CHECK(report->bytes_after < report->bytes_before);
        CHECK(std::filesystem::exists(out + "/model.safetensors") == (file_bytes > 20'000));
        CHECK(std::filesystem::exists(out + "/tokenizer.json"));

        const auto copied = ReadModelSpec(out);
        INFO(copied.status());
        REQUIRE(copied.ok());
        worker::StageWeights copied_targets;
        const worker::WeightPlan copied_plan = check::PlanWholeModel(*copied, &copied_targets);
        CHECK(worker::CheckCheckpoint({out}, *copied, copied_plan.requests).problems.empty());
        auto copy = worker::OpenCheckpoint({out}, copied_plan.requests);
        INFO(copy.status());
        REQUIRE(copy.ok());
        CheckEqual(**at_load, **copy, plan);
      }
    }
  }
}

TEST_CASE("what cannot be quantized is refused with the reason") {
  TempDir dir;
  const auto error = [&](const std::string& model, const std::string& out) {
    return QuantizeModel({.model = model, .out = out}, nullptr).status().ToString();
  };
  CHECK_THAT(error(Golden("gpt2"), dir.File("a")), ContainsSubstring("serve it with --quantize"));
  for (const char* stacked : {"gpt-oss", "qwen3-5-moe"}) {
    CAPTURE(stacked);
    CHECK_THAT(error(Golden(stacked), dir.File("stacked")), ContainsSubstring("several matrices"));
    CHECK(!std::filesystem::exists(dir.File("stacked")));
  }
  dir.Write("full/file", "x");
  CHECK_THAT(error(Golden("qwen3"), dir.File("full")), ContainsSubstring("name a new folder"));
  REQUIRE(QuantizeModel({.model = Golden("qwen3"), .out = dir.File("b")}, nullptr).ok());
  CHECK_THAT(
      error(dir.File("b"), dir.File("c")),
      ContainsSubstring("quantized already (INT4): serve this checkpoint without --quantize, or "
                        "quantize the model's checkpoint in bfloat16"));
  CHECK(!std::filesystem::exists(dir.File("c")));
}

}  // namespace
}  // namespace stagecoach::quantize
