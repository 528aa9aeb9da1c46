// LoRA adapters merged at load, against transformers with the adapter merged by peft (see
// make_adapters.py).
#include <catch2/catch_test_macros.hpp>

#include "kernels/cpu/cpu_ops.h"
#include "tests/golden/golden_compare.h"

namespace stagecoach {
namespace {

TEST_CASE("a merged adapter gives the same tokens as transformers with peft") {
  const std::string data = STAGECOACH_GOLDEN_DATA;
  const auto ops = kernels::MakeCpuOps({.n_threads = 2});
  const std::vector<GoldenModel> adapters = FindGoldenModels(data + "/adapters");
  REQUIRE(adapters.size() == 2);
  for (const GoldenModel& adapter : adapters) {
    for (const int32_t n_stages : {1, 2}) {
      auto run = PipelineRun::Load({.model_dir = data + "/mistral",
                                    .adapter_dir = adapter.model_dir,
                                    .n_stages = n_stages,
                                    .dtype = DType::kF32},
                                   ops.get());
      INFO(adapter.name << ": " << run.status());
      REQUIRE(run.ok());
      CheckWithinTolerance(adapter.name, CompareWithGolden(**run, adapter.cases, 512));
    }
  }
}

}  // namespace
}  // namespace stagecoach
