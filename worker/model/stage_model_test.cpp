#include "worker/model/stage_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>

#include "common/float_convert.h"
#include "common/temp_dir.h"
#include "kernels/reference/reference_ops.h"
#include "worker/model/scratch_sizes.h"

namespace stagecoach::worker {
namespace {

using Catch::Matchers::ContainsSubstring;

// Gemma-2: two KV groups, a tied embedding, soft caps.
constexpr const char* kGemma =
    R"({"architectures": ["Gemma2ForCausalLM"], "vocab_size": 50, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
  "max_position_embeddings": 64, "sliding_window": 16, "torch_dtype": "bfloat16"})";

StageModelOptions Options(const TempDir& dir) {
  dir.Write("config.json", kGemma);
  v1::LoadConfig config;
  config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  config.set_max_batched_tokens(32);
  config.set_max_sequences(4);
  config.set_max_model_len(64);
  return {
      .model_dir = dir.path(), .n_layers = 4, .is_first = true, .is_last = true, .config = config};
}

TEST_CASE("dummy weights give finite logits, and the KV cache can be replaced") {
  TempDir dir;
  const auto ops = kernels::MakeReferenceOps();
  auto model = StageModel::Load(Options(dir), ops.get(), nullptr);
  INFO(model.status());
  REQUIRE(model.ok());
  const uint64_t n_blocks[] = {4, 8};
  const std::vector<int32_t> ids = {7, 49, 0};
  const std::vector<kernels::StepSeq> seqs = {{.slot = 2, .position = 0, .n_tokens = 3}};
  const std::vector<kernels::NewBlock> blocks = {{0, 2, 0, 3}, {1, 2, 0, 3}};
  std::vector<float> first;
  for (int turn = 0; turn < 2; ++turn) {
    REQUIRE((*model)->AllocateKv(n_blocks).ok());
    (*model)->Forward({.seqs = seqs, .token_ids = ids, .new_blocks = blocks, .n_tokens = 3},
                      (*model)->hidden_buffer(), /*logit_rows=*/std::nullopt);
    const std::vector<int32_t> rows = {2, 0};
    const float* const logits = (*model)->Logits((*model)->hidden_buffer(), rows);
    const std::vector<float> values(logits, logits + 100);
    for (const float value : values) {
      CHECK(std::isfinite(value));
      CHECK(std::abs(value) <= 30.0f);  // the soft cap
    }
    if (turn == 0) first = values;
    CHECK(values == first);
    CHECK(std::vector<float>(values.begin(), values.begin() + 50) !=
          std::vector<float>(values.begin() + 50, values.end()));
  }
  CHECK(absl::IsInvalidArgument((*model)->AllocateKv(std::span(n_blocks).first(1))));
}

TEST_CASE("memory is reported by purpose") {
  TempDir dir;
  const auto ops = kernels::MakeReferenceOps();
  StageModelOptions options = Options(dir);
  const auto load = [&] {
    auto model = StageModel::Load(options, ops.get(), nullptr);
    REQUIRE(model.ok());
    return *std::move(model);
  };
  const auto whole = load();
  // One block of one layer: keys and values, 2 heads, 16 tokens, 8 values of 2 bytes.
  const uint64_t layer_block = 2 * 2 * 16 * 8 * 2;
  CHECK(whole->kv_block_bytes() == std::vector<uint64_t>{2 * layer_block, 2 * layer_block});
  CHECK(whole->max_logit_rows() == 4);
  CHECK(whole->scratch_bytes() > 0);

  options.n_layers = 1;
  options.is_last = false;
  const auto head = load();
  CHECK(head->kv_block_bytes() == std::vector<uint64_t>{layer_block, 0});
  options.first_layer = 1;
  options.n_layers = 3;
  options.is_first = false;
  options.is_last = true;
  const auto tail = load();
  // A single stage stores the tied table once. With two stages, each stores it.
  CHECK(head->weights_bytes() + tail->weights_bytes() == whole->weights_bytes() + 50 * 16 * 2);
  options.config.set_dtype(v1::DTYPE_FLOAT32);
  CHECK(load()->kv_block_bytes() == std::vector<uint64_t>{2 * layer_block, 4 * layer_block});
}

TEST_CASE("hidden states that travel as bfloat16 are rounded and widened by the model") {
  TempDir dir;
  const auto ops = kernels::MakeReferenceOps();
  StageModelOptions options = Options(dir);
  const auto load = [&](v1::HiddenDType type) {
    options.config.set_hidden_dtype(type);
    auto model = StageModel::Load(options, ops.get(), nullptr);
    REQUIRE(model.ok());
    return *std::move(model);
  };
  const auto whole = load(v1::HIDDEN_DTYPE_FLOAT32);
  const uint64_t whole_bytes = whole->scratch_bytes();
  CHECK(whole->passed_buffer() == whole->hidden_buffer());
  // Nothing travels from a single stage.
  CHECK(load(v1::HIDDEN_DTYPE_BFLOAT16)->scratch_bytes() == whole_bytes);

  options.n_layers = 2;
  options.is_last = false;
  const auto head = load(v1::HIDDEN_DTYPE_BFLOAT16);
  options.first_layer = 2;
  options.is_first = false;
  options.is_last = true;
  const auto tail = load(v1::HIDDEN_DTYPE_BFLOAT16);
  const std::vector<uint64_t> n_blocks = {2, 2};
  REQUIRE(head->AllocateKv(n_blocks).ok());
  REQUIRE(tail->AllocateKv(n_blocks).ok());

  const std::vector<int32_t> ids = {3, 1, 4};
  const kernels::StepSeq seq{.slot = 0, .position = 0, .n_tokens = 3};
  const std::vector<kernels::NewBlock> blocks = {{0, 0, 0, 1}, {1, 0, 0, 1}};
  kernels::StepBatch batch{
      .seqs = {&seq, 1}, .token_ids = ids, .new_blocks = blocks, .n_tokens = 3};
  head->Forward(batch, head->hidden_buffer(), std::nullopt);
  constexpr size_t kValues = size_t{3} * 16;
  const auto* const passed = static_cast<const uint16_t*>(head->passed_buffer());
  std::vector<uint16_t> expected(kValues);
  for (size_t i = 0; i < kValues; ++i) expected[i] = BF16FromFloat(head->hidden_buffer()[i]);
  CHECK(std::vector<uint16_t>(passed, passed + kValues) == expected);

  std::memcpy(tail->passed_buffer(), passed, kValues * sizeof(uint16_t));
  std::fill_n(tail->hidden_buffer(), kValues, NAN);  // is not read
  batch.token_ids = {};
  tail->Forward(batch, tail->hidden_buffer(), std::nullopt);
  CHECK(std::all_of(tail->hidden_buffer(), tail->hidden_buffer() + kValues,
                    [](float value) { return std::isfinite(value); }));
}

TEST_CASE("experts count in the layers that have them") {
  const auto ops = kernels::MakeReferenceOps();
  const auto load = [&](int32_t n_experts) {
    TempDir dir;
    StageModelOptions options = Options(dir);
    dir.Write("config.json", fmt::format(R"({{"architectures": ["Qwen3MoeForCausalLM"],
        "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4,
        "num_attention_heads": 4, "head_dim": 8, "max_position_embeddings": 64,
        "num_experts": {}, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
        "mlp_only_layers": [2], "torch_dtype": "bfloat16"}})",
                                         n_experts));
    auto model = StageModel::Load(options, ops.get(), nullptr);
    INFO(model.status());
    REQUIRE(model.ok());
    return *std::move(model);
  };
  const auto four = load(4), six = load(6);
  // Gate, up and down of one expert and its row of the router, with 2 bytes per weight.
  const uint64_t expert = (3 * 16 * 8 + 16) * 2;
  CHECK(six->weights_bytes() - four->weights_bytes() == 3 * 2 * expert);
  CHECK(six->scratch_bytes() - four->scratch_bytes() == 2 * 32 * sizeof(float));  // router logits
}

TEST_CASE("the scratch size equals the planned size") {
  const auto ops = kernels::MakeReferenceOps();
  TempDir dir;
  StageModelOptions options = Options(dir);
  const auto check = [&] {
    const auto model = StageModel::Load(options, ops.get(), nullptr);
    REQUIRE(model.ok());
    const ModelSpec& spec = (*model)->spec();
    const auto step = ops->NewStepInputs(StepLimitsOf(options, spec));
    CHECK((*model)->scratch_bytes() == SizeScratch(options, spec, {}).total() + (*step)->n_bytes);
  };
  check();
  options.n_layers = 2;
  options.is_last = false;
  check();
  options.config.set_hidden_dtype(v1::HIDDEN_DTYPE_BFLOAT16);
  check();
  options = Options(dir);
  // Like OPT-350M: an embedding narrower than the layers.
  dir.Write("config.json", R"({"architectures": ["OPTForCausalLM"], "vocab_size": 50,
      "hidden_size": 16, "word_embed_proj_dim": 8, "ffn_dim": 24, "num_hidden_layers": 4,
      "num_attention_heads": 4, "max_position_embeddings": 64, "do_layer_norm_before": false,
      "torch_dtype": "float32"})");
  check();
  dir.Write("config.json", R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 50,
      "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4,
      "head_dim": 8, "max_position_embeddings": 64, "num_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 8, "torch_dtype": "bfloat16"})");
  check();
}

TEST_CASE("progress rises to the total") {
  TempDir dir;
  const auto ops = kernels::MakeReferenceOps();
  uint64_t last = 0, total = 0;
  int n_calls = 0;
  const auto model = StageModel::Load(Options(dir), ops.get(), [&](uint64_t done, uint64_t all) {
    CHECK(done >= last);
    last = done;
    total = all;
    ++n_calls;
    return absl::OkStatus();
  });
  REQUIRE(model.ok());
  CHECK(n_calls > 4);
  CHECK(last == total);
  CHECK(total > 0);
}

TEST_CASE("a load stops when its progress callback returns an error") {
  TempDir dir;
  const auto ops = kernels::MakeReferenceOps();
  int n_calls = 0;
  const auto model = StageModel::Load(Options(dir), ops.get(), [&](uint64_t, uint64_t) {
    return ++n_calls == 3 ? absl::CancelledError("enough") : absl::OkStatus();
  });
  CHECK(absl::IsCancelled(model.status()));
  CHECK(n_calls == 3);
}

TEST_CASE("options that no model accepts are refused") {
  TempDir dir;
  const auto ops = kernels::MakeReferenceOps();
  const auto error = [&](auto change) {
    StageModelOptions options = Options(dir);
    change(options);
    const absl::Status status = StageModel::Load(options, ops.get(), nullptr).status();
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  CHECK_THAT(error([](auto& o) { o.n_layers = 5; }), ContainsSubstring("4 layers"));
  CHECK_THAT(error([](auto& o) { o.first_layer = -1; }), ContainsSubstring("4 layers"));
  CHECK_THAT(error([](auto& o) { o.is_last = false; }), ContainsSubstring("last"));
  CHECK_THAT(error([](auto& o) { o.config.set_max_model_len(65); }),
             ContainsSubstring("from 1 to 64"));
  CHECK_THAT(error([](auto& o) { o.config.set_max_sequences(0); }),
             ContainsSubstring("max_sequences"));
}

TEST_CASE("a checkpoint that does not match its config is refused with all problems") {
  TempDir dir;
  const auto ops = kernels::MakeReferenceOps();
  StageModelOptions options = Options(dir);
  options.config.set_load_format(v1::LOAD_FORMAT_AUTO);
  CHECK(absl::IsNotFound(StageModel::Load(options, ops.get(), nullptr).status()));

  const std::string header =
      R"({"model.embed_tokens.weight": {"dtype": "BF16", "shape": [48, 16], "data_offsets": [0, 1536]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  dir.Write("model.safetensors", file + header + std::string(1536, '\0'));
  const absl::Status status = StageModel::Load(options, ops.get(), nullptr).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring(
                 "embed_tokens.weight: has shape [48, 16], but config.json needs [50, 16]") &&
                 ContainsSubstring("model.layers.{0-3}.self_attn.q_proj.weight (4): missing") &&
                 ContainsSubstring("model.norm.weight: missing"));
}

}  // namespace
}  // namespace stagecoach::worker
