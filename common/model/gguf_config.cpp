#include "common/model/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numbers>
#include <optional>
#include <string_view>

#include "common/encoding/encoding.h"
#include "common/status.h"

namespace stagecoach {
namespace {

namespace json = boost::json;
using gguf::GgufFile;
using gguf::TensorInfo;
using gguf::TensorType;

struct GgufArchitecture {
  std::string_view name;  // as in general.architecture
  const char* hugging_face;
};
constexpr std::array kArchitectures = {
    GgufArchitecture{"llama", "LlamaForCausalLM"},
    GgufArchitecture{"gemma", "GemmaForCausalLM"},
    GgufArchitecture{"gemma2", "Gemma2ForCausalLM"},
    GgufArchitecture{"gemma3", "Gemma3ForCausalLM"},
    GgufArchitecture{"qwen2", "Qwen2ForCausalLM"},
    GgufArchitecture{"qwen3", "Qwen3ForCausalLM"},
    GgufArchitecture{"qwen3moe", "Qwen3MoeForCausalLM"},
};

const TensorInfo* FindTensor(const GgufFile& file, std::string_view name) {
  const auto found = file.tensors().find(name);
  return found == file.tensors().end() ? nullptr : &found->second;
}

// Writes metadata under config.json's keys. Keeps the first error.
class Translator {
 public:
  Translator(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(architecture) {}

  std::string Key(std::string_view suffix) const { return fmt::format("{}.{}", prefix_, suffix); }
  bool Has(std::string_view suffix) const { return file_.Has(Key(suffix)); }

  int64_t Int(std::string_view suffix, int64_t or_else) {
    return Has(suffix) ? Take(file_.Int(Key(suffix)), or_else) : or_else;
  }
  double Float(std::string_view suffix, double or_else) {
    return Has(suffix) ? Take(file_.Float(Key(suffix)), or_else) : or_else;
  }
  void PutInt(const char* to, std::string_view suffix) {
    config_[to] = Take(file_.Int(Key(suffix)), 0);
  }
  void PutFloat(const char* to, std::string_view suffix) {
    config_[to] = Take(file_.Float(Key(suffix)), 0);
  }
  void PutIntIfThere(const char* to, std::string_view suffix) {
    if (Has(suffix)) PutInt(to, suffix);
  }
  void PutFloatIfThere(const char* to, std::string_view suffix) {
    if (Has(suffix)) PutFloat(to, suffix);
  }
  void Put(const char* to, json::value value) { config_[to] = std::move(value); }
  std::string String(std::string_view suffix, std::string_view or_else) {
    return Has(suffix) ? std::string(Take(file_.String(Key(suffix)), or_else))
                       : std::string(or_else);
  }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  void Unsupported(std::string_view suffix, std::string_view text) {
    Fail(absl::UnimplementedError(fmt::format("{}: key {}: {}", file_.path(), Key(suffix), text)));
  }

  const absl::Status& status() const { return status_; }
  json::object& config() { return config_; }

 private:
  template <typename T, typename Else>
  T Take(absl::StatusOr<T> value, Else or_else) {
    if (value.ok()) return *std::move(value);
    Fail(value.status());
    return T(or_else);
  }

  const GgufFile& file_;
  std::string_view prefix_;
  json::object config_;
  absl::Status status_;
};

void PutSizes(const GgufFile& file, Translator& to) {
  to.PutInt("num_hidden_layers", "block_count");
  to.PutInt("hidden_size", "embedding_length");
  to.PutInt("intermediate_size", "feed_forward_length");
  to.PutInt("num_attention_heads", "attention.head_count");
  to.PutInt("max_position_embeddings", "context_length");
  to.PutFloat("rms_norm_eps", "attention.layer_norm_rms_epsilon");
  const int64_t n_heads = std::max<int64_t>(to.Int("attention.head_count", 1), 1);
  to.Put("num_key_value_heads", to.Int("attention.head_count_kv", n_heads));

  const int64_t head_dim = to.Int("attention.key_length", to.Int("embedding_length", 0) / n_heads);
  to.Put("head_dim", head_dim);
  if (to.Int("attention.value_length", head_dim) != head_dim) {
    to.Unsupported("attention.value_length", "key heads and value heads must have the same size");
  }
  if (to.Int("rope.dimension_count", head_dim) != head_dim) {
    to.Unsupported("rope.dimension_count", "rotation of only a part of each head is not supported");
  }
  // Take the vocabulary size from the embedding, because the metadata may omit it.
  const TensorInfo* embed = FindTensor(file, "token_embd.weight");
  if (embed == nullptr || embed->shape.size() != 2) {
    to.Fail(absl::InvalidArgumentError(
        fmt::format("{}: holds no tensor token_embd.weight of two dimensions; is it a part of a "
                    "split model, or only its vocabulary?",
                    file.path())));
  } else {
    to.Put("vocab_size", embed->shape[0]);
  }
  to.Put("tie_word_embeddings", FindTensor(file, "output.weight") == nullptr);
}

// Divisors of the rotary frequencies that Llama 3.1's scaling gives. The converter and all
// published models use these parameters; only the factor varies.
struct Llama3Scaling {
  static constexpr double kLow = 1, kHigh = 4, kOriginal = 8192;
  static double Divisor(double theta, double factor, int64_t i, int64_t head_dim) {
    const double wavelength =
        2 * std::numbers::pi *
        std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (wavelength < kOriginal / kHigh) return 1;
    if (wavelength > kOriginal / kLow) return factor;
    const double smooth = (kOriginal / wavelength - kLow) / (kHigh - kLow);
    return 1 / ((1 - smooth) / factor + smooth);
  }
};

// Llama 3.1 and later store a table of divisors. Checks that it matches Llama 3.1's scaling.
void PutFrequencyTable(const GgufFile& file, const TensorInfo& table, Translator& to) {
  const auto unsupported = [&](std::string_view text) {
    to.Fail(absl::UnimplementedError(
        fmt::format("{}: tensor rope_freqs.weight: {}", file.path(), text)));
  };
  const json::value* head = to.config().if_contains("head_dim");
  const int64_t head_dim = head != nullptr && head->is_int64() ? head->get_int64() : 0;
  if (table.type != TensorType::kF32 || table.shape.size() != 1 || table.shape[0] != head_dim / 2) {
    return unsupported("must be float32 with half a head's values");
  }
  std::vector<float> divisors(static_cast<size_t>(table.shape[0]));
  std::memcpy(divisors.data(), file.bytes().data() + table.begin, divisors.size() * sizeof(float));
  const double factor = *std::max_element(divisors.begin(), divisors.end());
  const double theta = to.Float("rope.freq_base", 10000.0);
  if (!(factor >= 1 && factor < 1e6 && theta >= 1)) {
    return unsupported("has invalid divisors");
  }
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double wanted = Llama3Scaling::Divisor(theta, factor, static_cast<int64_t>(i), head_dim);
    if (!(std::abs(divisors[i] - wanted) <= 1e-3 * wanted)) {
      return unsupported("differs from Llama 3.1's scaling; use the model's safetensors");
    }
  }
  if (factor == 1) return;
  to.Put("rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", Llama3Scaling::kLow},
          {"high_freq_factor", Llama3Scaling::kHigh},
          {"original_max_position_embeddings", static_cast<int64_t>(Llama3Scaling::kOriginal)}});
}

void PutRope(const GgufFile& file, Translator& to) {
  to.Put("rope_theta", to.Float("rope.freq_base", 10000.0));
  const std::string type = to.String("rope.scaling.type", "none");
  if (const TensorInfo* table = FindTensor(file, "rope_freqs.weight")) {
    return PutFrequencyTable(file, *table, to);
  }
  if (type == "linear") {
    to.Put("rope_scaling",
           {{"rope_type", "linear"}, {"factor", to.Float("rope.scaling.factor", 1)}});
  } else if (type != "none") {
    to.Unsupported(
        "rope.scaling.type",
        fmt::format("\"{}\" is not supported in GGUF; use the model's safetensors", type));
  }
}

void PutGemma(std::string_view architecture, Translator& to) {
  to.PutIntIfThere("sliding_window", "attention.sliding_window");
  to.PutFloatIfThere("attn_logit_softcapping", "attn_logit_softcapping");
  to.PutFloatIfThere("final_logit_softcapping", "final_logit_softcapping");
  to.PutFloatIfThere("rope_local_base_freq", "rope.freq_base_swa");
  if (architecture == "gemma") return;
  // GGUF has no key for this scale. The largest model of each family uses hidden_size / n_heads;
  // the others use the head size.
  const int64_t n_layers = to.Int("block_count", 0);
  const bool is_largest = n_layers == (architecture == "gemma2" ? 46 : 62);
  const int64_t n_heads = std::max<int64_t>(to.Int("attention.head_count", 1), 1);
  const int64_t mean_head = to.Int("embedding_length", 0) / n_heads;
  to.Put("query_pre_attn_scalar",
         is_largest ? mean_head : to.Int("attention.key_length", mean_head));
}

// Experts under the keys of the model's own config.json. `name`: of the architecture in GGUF.
void PutExperts(std::string_view name, Translator& to) {
  to.PutInt("num_experts_per_tok", "expert_used_count");
  if (name == "llama") {  // Mixtral, whose experts have the width of a dense MLP
    to.PutInt("num_local_experts", "expert_count");
    to.Put("architectures", json::array{"MixtralForCausalLM"});
  } else if (name == "qwen3moe") {
    to.PutInt("num_experts", "expert_count");
    to.PutInt("moe_intermediate_size", "expert_feed_forward_length");
    to.Put("norm_topk_prob", true);  // in every published model, so GGUF has no key for it
  } else {
    to.Unsupported("expert_count",
                   "experts of this architecture are not supported in GGUF; use the model's "
                   "safetensors");
  }
}

DType StoredDType(const GgufFile& file) {
  bool all_f32 = true, all_f16 = true;
  for (const auto& [name, info] : file.tensors()) {
    if (info.shape.size() < 2) continue;  // norms are float32 in every file
    const std::optional<Code> code = gguf::CodeOf(info.type);
    if (code && IsQuantized(*code)) return DType::kBF16;
    all_f32 &= info.type == TensorType::kF32;
    all_f16 &= info.type != TensorType::kBF16;
  }
  return all_f32 ? DType::kF32 : all_f16 ? DType::kF16 : DType::kBF16;
}

}  // namespace

bool IsGgufModel(const std::string& model_path) {
  std::error_code error;
  return model_path.ends_with(".gguf") && std::filesystem::is_regular_file(model_path, error);
}

absl::StatusOr<std::shared_ptr<const json::object>> GgufConfig(const GgufFile& file) {
  SC_ASSIGN_OR_RETURN(const std::string_view name, file.String("general.architecture"));
  if (file.Int("split.count").value_or(1) > 1) {
    return absl::UnimplementedError(
        fmt::format("{}: is one part of a model split over {} files; join them first "
                    "(llama-gguf-split --merge FIRST_PART OUT.gguf)",
                    file.path(), *file.Int("split.count")));
  }
  const auto* architecture =
      std::find_if(kArchitectures.begin(), kArchitectures.end(),
                   [&](const GgufArchitecture& entry) { return entry.name == name; });
  if (architecture == kArchitectures.end()) {
    std::string supported;
    for (const GgufArchitecture& entry : kArchitectures) {
      supported += fmt::format("{}{}", supported.empty() ? "" : ", ", entry.name);
    }
    return absl::UnimplementedError(
        fmt::format("{}: architecture \"{}\" is not supported in GGUF; supported are {}",
                    file.path(), name.substr(0, 64), supported));
  }
  Translator to(file, name);
  PutSizes(file, to);
  PutRope(file, to);
  to.Put("architectures", json::array{architecture->hugging_face});
  if (name.starts_with("gemma")) PutGemma(name, to);
  if (name == "llama" && to.Has("attention.sliding_window")) {
    to.PutInt("sliding_window", "attention.sliding_window");
    to.Put("architectures", json::array{"MistralForCausalLM"});
  }
  if (name == "qwen3moe" || to.Int("expert_count", 0) != 0) PutExperts(name, to);
  SC_RETURN_IF_ERROR(to.status());
  return std::make_shared<const json::object>(std::move(to.config()));
}

void AdaptToGguf(const GgufFile& file, ModelSpec* spec) {
  const auto has = [&](std::string_view name) { return FindTensor(file, name) != nullptr; };
  spec->qkv_bias = has("blk.0.attn_q.bias");
  spec->o_bias = has("blk.0.attn_output.bias");
  spec->mlp_bias = has("blk.0.ffn_up.bias");
  if (spec->norm == NormKind::kRmsPlusOne) spec->norm = NormKind::kRms;
  spec->stored_dtype = StoredDType(file);
  TensorNames& names = spec->names;
  const auto rename = [](std::string* name, const char* to) {
    if (!name->empty()) *name = to;
  };
  rename(&names.embed, "token_embd");
  rename(&names.final_norm, "output_norm");
  rename(&names.lm_head, "output");
  rename(&names.attn_norm, "blk.{}.attn_norm");
  rename(&names.q, "blk.{}.attn_q");
  rename(&names.k, "blk.{}.attn_k");
  rename(&names.v, "blk.{}.attn_v");
  rename(&names.o, "blk.{}.attn_output");
  rename(&names.q_norm, "blk.{}.attn_q_norm");
  rename(&names.k_norm, "blk.{}.attn_k_norm");
  rename(&names.post_attn_norm, "blk.{}.post_attention_norm");
  rename(&names.mlp_norm, "blk.{}.ffn_norm");
  rename(&names.gate, "blk.{}.ffn_gate");
  rename(&names.up, "blk.{}.ffn_up");
  rename(&names.down, "blk.{}.ffn_down");
  rename(&names.router, "blk.{}.ffn_gate_inp");
  rename(&names.expert_gate, "blk.{}.ffn_gate_exps");
  rename(&names.expert_up, "blk.{}.ffn_up_exps");
  rename(&names.expert_down, "blk.{}.ffn_down_exps");
  rename(&names.post_mlp_norm, "blk.{}.post_ffw_norm");
}

absl::StatusOr<std::optional<PoolingSpec>> GgufPooling(const GgufFile& file) {
  constexpr int64_t kNone = 0, kMean = 1, kLast = 3;
  SC_ASSIGN_OR_RETURN(const std::string_view name, file.String("general.architecture"));
  const std::string key = fmt::format("{}.pooling_type", name);
  if (!file.Has(key)) return std::nullopt;
  SC_ASSIGN_OR_RETURN(const int64_t type, file.Int(key));
  if (type == kNone) return std::nullopt;
  if (type != kMean && type != kLast) {
    return absl::UnimplementedError(
        fmt::format("{}: key {}: {} is not supported; supported are {} (mean) and {} (last token)",
                    file.path(), key, type, kMean, kLast));
  }
  return PoolingSpec{.mean = type == kMean, .normalize = true};
}

std::vector<int32_t> GgufEosIds(const GgufFile& file) {
  std::vector<int32_t> ids;
  const auto add = [&](int64_t id) {
    if (id < 0 || id > INT32_MAX) return;
    const int32_t number = static_cast<int32_t>(id);
    if (std::find(ids.begin(), ids.end(), number) == ids.end()) ids.push_back(number);
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = file.Int(key); id.ok()) add(*id);
  }
  // The metadata names one end token, but chat models have two: end of text and end of turn.
  constexpr int64_t kControl = 3;
  const auto tokens = file.Strings("tokenizer.ggml.tokens");
  const auto types = file.Ints("tokenizer.ggml.token_type");
  if (!tokens.ok() || !types.ok() || tokens->size() != types->size()) return ids;
  for (size_t i = 0; i < tokens->size(); ++i) {
    if ((*types)[i] != kControl) continue;
    for (const char* end : {"<end_of_turn>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>"}) {
      if ((*tokens)[i] == end) add(static_cast<int64_t>(i));
    }
  }
  return ids;
}

}  // namespace stagecoach
