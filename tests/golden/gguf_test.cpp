// A golden model converted to a .gguf file by the converter's rules must compute the same results
// as its safetensors file. The rules: other names, q and k permuted for GGUF's rotary layout,
// Gemma's norms stored as 1 + w, the experts of a layer one after another in a tensor.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <span>

#include "common/float_convert.h"
#include "common/gguf/test_gguf.h"
#include "common/model/config_reader.h"
#include "common/temp_dir.h"
#include "kernels/reference/reference_ops.h"
#include "tests/golden/golden_data.h"
#include "tests/golden/pipeline_run.h"
#include "worker/loader/checkpoint_files.h"
#include "worker/loader/safetensors_writer.h"

namespace stagecoach {
namespace {

using gguf::TensorType;
using gguf::TestGguf;

// Hugging Face's name of a layer's tensor -> GGUF's name. Those of experts lack the expert's
// number.
const std::map<std::string, std::string> kLayerNames = {
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.w3", "ffn_up_exps"},
    {"block_sparse_moe.experts.w2", "ffn_down_exps"},
};

constexpr std::string_view kLayers = "model.layers.", kExperts = ".experts.";

std::string GgufName(const std::string& name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  REQUIRE(name.starts_with(kLayers));
  const size_t layer_end = name.find('.', kLayers.size()), suffix = name.rfind('.');
  const std::string layer = name.substr(kLayers.size(), layer_end - kLayers.size());
  std::string within = name.substr(layer_end + 1, suffix - layer_end - 1);
  if (const size_t at = within.find(kExperts); at != within.npos) {
    const size_t number = at + kExperts.size();
    within.erase(number, within.find('.', number) + 1 - number);
  }
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

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// By Hugging Face's names.
std::map<std::string, Tensor> ReadTensors(const std::string& model_dir) {
  auto files = worker::CheckpointFiles::Open(model_dir);
  REQUIRE(files.ok());
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : files->Names()) {
    const auto found = files->FindExact(name);
    const DType dtype = *PlainDType(*found.entry->code);
    Tensor& tensor = tensors[name];
    tensor.shape = found.entry->shape;
    tensor.values.resize((found.entry->end - found.entry->begin) / DTypeBytes(dtype));
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] =
          LoadElement(found.file->mapped->bytes().data() + found.entry->begin, dtype, i);
    }
  }
  return tensors;
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
  if (spec.experts.n_experts > 0) {
    uint("expert_count", spec.experts.n_experts);
    uint("expert_used_count", spec.experts.n_used);
    uint("expert_feed_forward_length", spec.experts.intermediate_size);
  }
  std::map<std::string, Tensor> converted;
  for (auto& [tensor, stored] : ReadTensors(model_dir)) {
    std::vector<float> values = stored.values;
    const int64_t cols = stored.shape.size() == 2 ? stored.shape[1] : 1;
    const bool is_qk = tensor.find("q_proj") != tensor.npos || tensor.find("k_proj") != tensor.npos;
    if (name == "llama" && is_qk) values = Permute(values, spec.head_dim, cols);
    if (name == "gemma" && tensor.ends_with("norm.weight")) {
      for (float& value : values) value += 1;
    }
    Tensor& to = converted[GgufName(tensor)];
    to.values.insert(to.values.end(), values.begin(), values.end());  // after the experts before
    if (to.shape.empty()) {
      to.shape = stored.shape;
      if (tensor.find(kExperts) != tensor.npos) to.shape.insert(to.shape.begin(), 0);
    }
    if (tensor.find(kExperts) != tensor.npos) ++to.shape[0];
  }
  for (const auto& [tensor, to] : converted) {
    file.Tensor(
        tensor, {to.shape.rbegin(), to.shape.rend()}, TensorType::kF32,
        {reinterpret_cast<const char*>(to.values.data()), to.values.size() * sizeof(float)});
  }
  return file;
}

// Writes the golden model with the form of Qwen3-30B-A3B, which GGUF's qwen3moe implies: its dense
// layer, number 1, is left out, and the weights of the used experts sum to 1.
void WriteQwen3MoeWithoutDenseLayer(const std::string& model_dir, const TempDir& to) {
  const auto golden_config = ReadJsonObject(model_dir + "/config.json");
  REQUIRE(golden_config.ok());
  boost::json::object config = **golden_config;
  config["num_hidden_layers"] = 3;
  config["mlp_only_layers"] = boost::json::array();
  config["norm_topk_prob"] = true;
  to.Write("config.json", boost::json::serialize(config));
  std::map<std::string, Tensor> tensors;
  for (auto& [name, tensor] : ReadTensors(model_dir)) {
    if (name.starts_with("model.layers.1.")) continue;
    std::string renamed = name;
    if (name.starts_with(kLayers) && name[kLayers.size()] > '1') --renamed[kLayers.size()];
    tensors[renamed] = std::move(tensor);
  }
  std::vector<worker::TensorToWrite> header;
  for (const auto& [name, tensor] : tensors) {
    header.push_back({name, "F32", tensor.shape, tensor.values.size() * sizeof(float)});
  }
  auto writer = worker::SafetensorsWriter::Create(to.File("model.safetensors"), header);
  REQUIRE(writer.ok());
  for (const auto& [name, tensor] : tensors)
    writer->Append(std::as_bytes(std::span(tensor.values)));
  REQUIRE(writer->Close().ok());
}

TEST_CASE("a GGUF model gives the same results as from safetensors") {
  const auto [folder, architecture] =
      GENERATE(table<std::string, std::string>({{"llama-linear", "llama"},
                                                {"mistral-window", "llama"},
                                                {"gemma", "gemma"},
                                                {"mixtral", "llama"},
                                                {"qwen3-moe", "qwen3moe"}}));
  INFO(folder);
  const std::string golden_dir = std::string(STAGECOACH_GOLDEN_DATA) + "/" + folder;
  TempDir safetensors;
  const bool is_rewritten = folder == "qwen3-moe";
  if (is_rewritten) WriteQwen3MoeWithoutDenseLayer(golden_dir, safetensors);
  const std::string model_dir = is_rewritten ? safetensors.path() : golden_dir;
  const auto spec = ReadModelSpec(model_dir);
  REQUIRE(spec.ok());
  TempDir dir;
  dir.Write("m.gguf", Convert(model_dir, *spec, architecture).Bytes());

  const auto ops = kernels::MakeReferenceOps();
  std::vector<std::vector<std::vector<float>>> logits;
  const std::vector<GoldenCase> cases = ReadGoldenFile(golden_dir + "/golden.json");
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
