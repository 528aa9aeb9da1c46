// A golden model converted to a .gguf file by the converter's rules must compute the same results
// as its safetensors file. The rules: other names, q and k permuted for GGUF's rotary layout,
// Gemma's norms stored as 1 + w.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>
#include <map>

#include "common/float_convert.h"
#include "common/gguf/test_gguf.h"
#include "common/temp_dir.h"
#include "kernels/reference/reference_ops.h"
#include "tests/golden/golden_data.h"
#include "tests/golden/pipeline_run.h"
#include "worker/loader/checkpoint_files.h"

namespace stagecoach {
namespace {

using gguf::TensorType;
using gguf::TestGguf;

// Hugging Face's name of a layer's tensor -> GGUF's name.
const std::map<std::string, std::string> kLayerNames = {
    {"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},   {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},   {"self_attn.o_proj", "attn_output"},
    {"mlp.gate_proj", "ffn_gate"},    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

std::string GgufName(const std::string& name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  constexpr std::string_view kLayers = "model.layers.";
  REQUIRE(name.starts_with(kLayers));
  const size_t layer_end = name.find('.', kLayers.size()), suffix = name.rfind('.');
  const std::string layer = name.substr(kLayers.size(), layer_end - kLayers.size());
  const std::string within = name.substr(layer_end + 1, suffix - layer_end - 1);
  return fmt::format("blk.{}.{}{}", layer, kLayerNames.at(within), name.substr(suffix));
}

// The converter's permutation: [heads, 2, half, cols] -> [heads, half, 2, cols].
std::vector<float> Permute(const std::vector<float>& rows, int64_t head, int64_t cols) {
  std::vector<float> permuted(rows.size());
  const int64_t n_rows = static_cast<int64_t>(rows.size()) / cols;
  for (int64_t row = 0; row < n_rows; ++row) {
    const int64_t first = row / head * head, within = row % head;
    const int64_t to = first + within % (head / 2) * 2 + within / (head / 2);
    std::memcpy(permuted.data() + to * cols, rows.data() + row * cols,
                sizeof(float) * static_cast<size_t>(cols));
  }
  return permuted;
}

std::vector<float> Values(const worker::CheckpointFiles::Found& found) {
  const DType dtype = *PlainDType(*found.entry->code);
  std::vector<float> values((found.entry->end - found.entry->begin) / DTypeBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadElement(found.file->mapped->bytes().data() + found.entry->begin, dtype, i);
  }
  return values;
}

TestGguf Convert(const std::string& model_dir, const ModelSpec& spec, const std::string& name) {
  TestGguf file;
  file.String("general.architecture", name);
  const auto uint = [&](const char* key, int32_t value) {
    file.Uint(name + "." + key, static_cast<uint32_t>(value));
  };
  uint("block_count", spec.n_layers());
  uint("embedding_length", spec.hidden_size);
  uint("feed_forward_length", spec.intermediate_size);
  uint("attention.head_count", spec.n_heads);
  uint("attention.head_count_kv", spec.n_kv_heads);
  uint("attention.key_length", spec.head_dim);
  uint("context_length", spec.max_positions);
  file.Float(name + ".attention.layer_norm_rms_epsilon", static_cast<float>(spec.norm_eps));
  file.Float(name + ".rope.freq_base", static_cast<float>(spec.ropes[0].theta));
  if (spec.ropes[0].scaling == RopeScaling::kLinear) {
    file.String(name + ".rope.scaling.type", "linear");
    file.Float(name + ".rope.scaling.factor", static_cast<float>(spec.ropes[0].factor));
  }
  if (spec.kv_groups[0].window.size > 0) {
    uint("attention.sliding_window", spec.kv_groups[0].window.size);
  }
  auto files = worker::CheckpointFiles::Open(model_dir);
  REQUIRE(files.ok());
  for (const std::string& tensor : files->Names()) {
    const auto found = files->FindExact(tensor);
    std::vector<float> values = Values(found);
    const std::vector<int64_t>& shape = found.entry->shape;
    const int64_t cols = shape.size() == 2 ? shape[1] : 1;
    const bool is_qk = tensor.find("q_proj") != tensor.npos || tensor.find("k_proj") != tensor.npos;
    if (name == "llama" && is_qk) values = Permute(values, spec.head_dim, cols);
    if (name == "gemma" && tensor.ends_with("norm.weight")) {
      for (float& value : values) value += 1;
    }
    std::vector<uint64_t> dims(shape.rbegin(), shape.rend());
    file.Tensor(GgufName(tensor), dims, TensorType::kF32,
                {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  return file;
}

TEST_CASE("a GGUF model gives the same results as from safetensors") {
  const auto [folder, architecture] = GENERATE(table<std::string, std::string>(
      {{"llama-linear", "llama"}, {"mistral-window", "llama"}, {"gemma", "gemma"}}));
  INFO(folder);
  const std::string model_dir = std::string(STAGECOACH_GOLDEN_DATA) + "/" + folder;
  const auto spec = ReadModelSpec(model_dir);
  REQUIRE(spec.ok());
  TempDir dir;
  dir.Write("m.gguf", Convert(model_dir, *spec, architecture).Bytes());

  const auto ops = kernels::MakeReferenceOps();
  std::vector<std::vector<std::vector<float>>> logits;
  const std::vector<GoldenCase> cases = ReadGoldenFile(model_dir + "/golden.json");
  for (const std::string& path : {model_dir, dir.File("m.gguf")}) {
    auto run =
        PipelineRun::Load({.model_dir = path, .n_stages = 2, .dtype = DType::kF32}, ops.get());
    INFO(run.status());
    REQUIRE(run.ok());
    TestSequence sequence = (*run)->NewSequence(cases.back().prompt_ids);
    logits.push_back((*run)->Prefill(&sequence, 64));
  }
  REQUIRE(logits[0].size() == logits[1].size());
  float worst = 0;
  for (size_t row = 0; row < logits[0].size(); ++row) {
    for (size_t i = 0; i < logits[0][row].size(); ++i) {
      worst = std::max(worst, std::abs(logits[0][row][i] - logits[1][row][i]));
    }
  }
  CHECK(worst < 1e-5f);
}

}  // namespace
}  // namespace stagecoach
