#include "common/model/device_support.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "common/env_switch.h"

namespace stagecoach {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("a model with heads that are too large for a GPU's registers is refused there") {
  ModelSpec spec{.architecture = "Qwen3NextForCausalLM"};
  CHECK(CheckRunsOnGpus(spec).ok());
  spec.recurrent = RecurrentSpec{.shape = {.key_dim = 256, .conv_width = 4}};
  CHECK(CheckRunsOnGpus(spec).ok());
  spec.recurrent->shape.key_dim = 257;
  const absl::Status status = CheckRunsOnGpus(spec);
  CHECK(absl::IsUnimplemented(status));
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring("Qwen3NextForCausalLM runs on CPUs only") &&
                 ContainsSubstring("heads of 257 keys"));
  spec.recurrent->shape = {.key_dim = 128, .conv_width = 5};
  CHECK_THAT(std::string(CheckRunsOnGpus(spec).message()),
             ContainsSubstring("convolutions of 5 positions"));
}

TEST_CASE("layers may differ in heads on GPUs if tensor cores serve only one kind") {
  ModelSpec spec{.architecture = "Gemma4ForCausalLM",
                 .n_heads = 8,
                 .n_kv_heads = 4,
                 .head_dim = 256,
                 .kv_groups = {{}, {.window = 8}},
                 .layers = {{}, {.kv_group = 1}}};
  CHECK(CheckRunsOnGpus(spec).ok());
  spec.kv_groups[0] = {.n_kv_heads = 2, .head_dim = 512, .keys_as_values = true};
  CHECK(CheckRunsOnGpus(spec).ok());
  spec.kv_groups[0].head_dim = 128;
  const absl::Status status = CheckRunsOnGpus(spec);
  CHECK(absl::IsUnimplemented(status));
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring("Gemma4ForCausalLM runs on CPUs only"));
}

TEST_CASE("a model whose groups of experts do not fit into a warp's registers is refused on GPUs") {
  ModelSpec spec{.architecture = "DeepseekV2ForCausalLM", .kv_groups = {{}}, .layers = {{}}};
  spec.latent = LatentSpec{.kv_rank = 512};
  spec.experts.n_experts = 512;
  spec.experts.n_used = 6;
  spec.experts.softmax_groups.factor = 16;
  CHECK(CheckRunsOnGpus(spec).ok());
  spec.experts.softmax_groups = {.n_groups = 8, .n_used_groups = 3, .factor = 16};
  CHECK_THAT(std::string(CheckRunsOnGpus(spec).message()),
             ContainsSubstring("DeepseekV2ForCausalLM runs on CPUs only: it chooses 6 of 512"));
  spec.experts.n_experts = 256;
  CHECK(CheckRunsOnGpus(spec).ok());
  spec.experts.softmax_groups.n_groups = 64;
  CHECK_FALSE(CheckRunsOnGpus(spec).ok());
  spec.experts.softmax_groups.n_groups = 32;
  CHECK(CheckRunsOnGpus(spec).ok());
  spec.experts.n_used = 33;
  CHECK_FALSE(CheckRunsOnGpus(spec).ok());
}

TEST_CASE("GPUs keep weights whose groups of inputs suit their kernels") {
  Encoding int4(Code::kInt4);
  int4.group = 128;
  CHECK(GpusKeep(int4, 2880));
  CHECK_FALSE(GpusKeep(int4, 2888));
  int4.group = 96;
  CHECK_FALSE(GpusKeep(int4, 2880));
  int4.group = 512;
  CHECK(GpusKeep(int4, 2048));
  CHECK(GpusKeep(Code::kFp8, 2880));
  CHECK(GpusKeep(MxFp4Encoding(), 2880));
  CHECK(GpusKeep(Code::kQ4_0, 2880));
  CHECK(GpusKeep(Code::kQ4_K, 2816));
  CHECK_FALSE(GpusKeep(Code::kQ4_K, 2880));
  CHECK_FALSE(GpusKeep(Code::kBF16, 4096));
}

TEST_CASE("GPUs keep experts whose inputs have the model's order") {
  Encoding int4(Code::kInt4);
  int4.group = 128;
  CHECK(GpusKeepExperts(int4, 2048));
  CHECK_FALSE(GpusKeepExperts(int4, 2056));
  int4.is_permuted = true;
  CHECK_FALSE(GpusKeepExperts(int4, 2048));
  CHECK(GpusKeep(int4, 2048));
  int4.is_permuted = false;
  setenv(kPackedExpertsSwitch, "off", /*overwrite=*/1);
  CHECK_FALSE(GpusKeepAnyExperts());
  CHECK_FALSE(GpusKeepExperts(int4, 2048));
  CHECK(GpusKeep(int4, 2048));
  unsetenv(kPackedExpertsSwitch);
  CHECK(GpusKeepAnyExperts());
}

TEST_CASE("inputs of layers need a hidden size that keeps them aligned on GPUs") {
  ModelSpec spec{.architecture = "Gemma4ForCausalLM",
                 .hidden_size = 1536,
                 .kv_groups = {{}},
                 .layers = {{}, {.kv_source = 0}}};
  spec.layer_inputs.width = 256;
  CHECK(CheckRunsOnGpus(spec).ok());
  spec.hidden_size = 1538;
  CHECK_THAT(std::string(CheckRunsOnGpus(spec).message()), ContainsSubstring("hidden size, 1538"));
}

}  // namespace
}  // namespace stagecoach
