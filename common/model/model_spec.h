// The content of a checkpoint's config.json in this project's terms. One decoder runs every
// ModelSpec. To add an architecture, add one file in common/model/arch/ that fills in a ModelSpec,
// and one line in the table there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dtype.h"
#include "common/key_window.h"
#include "common/model/latent_spec.h"
#include "common/model/layer_inputs_spec.h"
#include "common/model/layer_kinds.h"
#include "common/model/quantization.h"
#include "common/model/recurrent_spec.h"

namespace stagecoach {

enum class NormPlacement : uint8_t {
  kBefore,          // x + f(norm(x))
  kBeforeAndAfter,  // x + norm(f(norm(x))): Gemma-2 and -3
  kAfterSum         // norm(x + f(x)): opt-350m
};

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope, kProportional };

struct RopeSpec {
  double theta = 10000.0;
  int32_t rotary_dim = 0;  // of each head, from its start; 0: the whole head
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;                    // kLinear, kLlama3, kYarn, kProportional
  int32_t n_turning = 0;                  // kProportional: the later frequencies are 0
  double low_freq_factor = 1.0;           // kLlama3
  double high_freq_factor = 4.0;          // kLlama3
  int32_t original_max_positions = 8192;  // kLlama3, kYarn, kLongRope
  double attention_factor = 1.0;          // kYarn, kLongRope: multiplies cos and sin
  double beta_fast = 32.0;                // kYarn, like the two below
  double beta_slow = 1.0;
  bool truncate = true;
  // kLongRope: divisors of the frequencies, [rotary_dim / 2] each. The long factors apply if the
  // server allows sequences longer than original_max_positions, also to shorter sequences: keys of
  // early positions are already in the KV cache when a sequence grows past that length.
  std::vector<double> short_factors, long_factors;
};

struct LayerSpec {
  int32_t kv_group = 0;  // index into ModelSpec::kv_groups
  // Index into ModelSpec::ropes; unused with learned positions. -1: the layer has no rotation.
  int32_t rope = 0;
  bool scales_queries = false;  // by ModelSpec::query_scaling
  bool has_experts = false;     // experts replace the MLP, unless ExpertSpec::beside_mlp
  int32_t mlp_width = 0;        // intermediate size of its MLP; 0: the model's
  // >= 0: the layer attends to the keys and values of this earlier layer, which has the same KV
  // group, and has none of its own. Both layers are on one stage.
  int32_t kv_source = -1;
  // A recurrent layer replaces attention. The layer then has no KV group and no rotation.
  bool is_recurrent = false;
  // A layer may be one of its two parts only: what mixes positions, or an MLP and experts.
  bool has_mixer = true;
  bool has_mlp = true;

  bool has_attention() const { return has_mixer && !is_recurrent; }
};

// Parameters of mixture-of-experts layers: each row goes to n_used of n_experts gated MLPs.
struct ExpertSpec {
  int32_t n_experts = 0;  // 0: the model has none
  int32_t n_used = 0;
  int32_t intermediate_size = 0;
  bool weights_over_used = true;  // the weights of the used experts sum to 1
  bool router_bias = false;
  bool biases = false;  // of each expert's matrices
  // The expert's input is multiplied by the sigmoid of its logit, and its output has no weight
  // (Llama 4). Then n_used is 1.
  bool scales_input = false;
  // Scores by sigmoid in place of the softmax, with TensorNames::router_correction if it is set.
  std::optional<SigmoidRouting> sigmoid;
  SoftmaxGroups softmax_groups;  // without sigmoid
  // The experts of a layer stand beside its MLP (Gemma 4). Both have the same input before the
  // norm, and norms of their own before and after them. The sum passes the layer's post norm. The
  // router's input has a norm of its own, times hidden_size^-0.5.
  bool beside_mlp = false;
};

// Layers that allocate and free KV blocks together. There is one block table per sequence and
// group.
struct KvGroupSpec {
  KeyWindow window;
  // The group's layers have these sizes; 0: the model's.
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;
  bool keys_as_values = false;  // KvOfRow::kKeysAsValues, in layers with keys of their own
};

// The heads of one layer's attention.
struct HeadShape {
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;
  // Attention adds up vectors of this size: head_dim or, with latents, the numbers of a latent
  // without its rotated part.
  int32_t value_dim = 0;
  KvOfRow kv_of_row = KvOfRow::kKeysAndValues;

  int32_t q_width() const { return n_heads * head_dim; }
  int32_t out_width() const { return n_heads * value_dim; }
  int32_t kv_width() const { return n_kv_heads * head_dim; }  // of keys, and of values
  int32_t qkv_width() const { return q_width() + NKvVectors(kv_of_row) * kv_width(); }
};

// How an embedding model makes one vector of the hidden states of a text.
struct PoolingSpec {
  bool mean = false;       // the mean over all positions; else the last position's
  bool normalize = false;  // to length 1
};

// Tensor names with "{}" for the layer. In names of experts, a second "{}" stands for the expert;
// without it, a tensor holds all, one after another: [n_experts, rows, cols]. Empty: there is no
// such tensor. Each name is a prefix: ".weight" and, if the spec says so, ".bias" follow.
struct TensorNames {
  std::string embed, positions, final_norm, lm_head;
  std::string project_in, project_out;  // between embedding and hidden size
  std::string attn_norm, q, k, v, o, q_norm, k_norm, post_attn_norm;
  std::string qkv;  // fused q, k and v, in place of the three
  std::string mlp_norm, gate, up, down, post_mlp_norm;
  std::string gate_up;  // fused gate and up, in place of the two
  std::string router, expert_gate, expert_up, expert_down;
  // Layers with ExpertSpec::beside_mlp have norms before and after experts, and after the MLP.
  std::string expert_norm, post_expert_norm, post_dense_norm;
  // The whole names of vectors. router_norm: with ExpertSpec::beside_mlp. expert_scales: factors of
  // the experts' weights. layer_scale: one number, by which a layer's output is multiplied.
  std::string sinks, router_correction, router_norm, expert_scales, layer_scale;
  // The whole names of tensors that hold all experts: those of gate and up have the outputs of both
  // in turns, or those of gate before those of up. Names of biases end with "_bias". In place of
  // the names by expert, if there are none of these or the checkpoint lacks them. Unless they are
  // MXFP4, matrices are stored as [experts, inputs, outputs].
  std::string stacked_gate_up, stacked_down;
  bool gate_before_up = false;
  // The whole names of tensors with the matrices of all experts, gate and up fused: [n_experts,
  // 2 X, H] and [n_experts, H, X]. A checkpoint may have these in place of the expert_ ones.
  std::string fused_expert_up, fused_expert_down;
};

struct ModelSpec {
  std::string architecture;  // "LlamaForCausalLM"
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t embed_size = 0;  // row size of embedding and lm_head
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;  // like head_dim, unless the KV group says otherwise
  int32_t head_dim = 0;
  int32_t intermediate_size = 0;
  int32_t max_positions = 0;
  DType stored_dtype = DType::kF32;  // of weights that are not quantized
  Quantization quantization;

  NormKind norm = NormKind::kRms;
  double norm_eps = 1e-5;
  Activation activation = Activation::kSilu;
  // down(act(gate(x)) * up(x)); else down(act(up(x))). Also of experts.
  bool gated_mlp = true;
  NormPlacement norm_placement = NormPlacement::kBefore;
  bool qk_norm = false;            // per-head RMS norm of q and k before the rotation
  bool qk_norm_all_heads = false;  // that norm is over all heads of q, and of k
  bool plain_qk_norm = false;      // that norm has no weight, and only layers with rotation have it
  bool v_norm = false;             // per-head RMS norm of v, without a weight
  bool attn_sinks = false;         // each head has the score of one more key, without a value
  QueryScaling query_scaling;      // see LayerSpec::scales_queries
  ClampedGlu clamped_glu;          // of the experts, in place of `activation`
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool transposed_linears = false;  // GPT-2 stores the layers' matrices as [inputs, outputs]
  // The checkpoint is for a rotation of neighbouring values of a head (Llama 4): the rows of q and
  // k are brought into the order of its halves.
  bool neighbours_rotate = false;
  bool tied_embedding = false;
  float embed_scale = 1.0f;   // Gemma: sqrt(hidden_size), rounded like the reference
  float attn_scale = 0.0f;    // usually 1 / sqrt(head_dim)
  float attn_softcap = 0.0f;  // cap * tanh(score / cap); 0: off
  float logit_softcap = 0.0f;

  bool learned_positions = false;  // OPT: a table of max_positions + position_offset rows
  int32_t position_offset = 0;

  ExpertSpec experts;
  SharedExpertSpec shared_expert;
  LayerInputsSpec layer_inputs;
  std::optional<RecurrentSpec> recurrent;  // set: some layers are recurrent
  // Set: all layers have latent attention. Then n_kv_heads is 1, and head_dim is that of a latent.
  std::optional<LatentSpec> latent;
  // q's projection has two halves per head: q, and a gate whose sigmoid scales the attention's
  // output.
  bool attn_gate = false;
  std::optional<PoolingSpec> pooling;  // set: an embedding model, which has no logits
  std::vector<RopeSpec> ropes;
  std::vector<KvGroupSpec> kv_groups;
  std::vector<LayerSpec> layers;
  TensorNames names;
  // Layers after `layers` that the checkpoint has for predicting further tokens.
  int32_t n_unused_layers = 0;
  // What a user should know of how this checkpoint is served: sentences without a full stop.
  std::vector<std::string> notes;

  HeadShape heads(const LayerSpec& layer) const {
    const KvGroupSpec& group = kv_groups.at(static_cast<size_t>(layer.kv_group));
    const int32_t dim = group.head_dim > 0 ? group.head_dim : head_dim;
    return {.n_heads = n_heads,
            .n_kv_heads = group.n_kv_heads > 0 ? group.n_kv_heads : n_kv_heads,
            .head_dim = dim,
            .value_dim = latent ? latent->kv_rank : dim,
            .kv_of_row = latent                 ? KvOfRow::kLatents
                         : layer.kv_source >= 0 ? KvOfRow::kNone
                         : group.keys_as_values ? KvOfRow::kKeysAsValues
                                                : KvOfRow::kKeysAndValues};
  }
  // Intermediate size of the layer's MLP that all rows go to, apart from a shared expert; 0: it has
  // none.
  int32_t mlp_width(const LayerSpec& layer) const {
    if (!layer.has_mlp || (layer.has_experts && !experts.beside_mlp)) return 0;
    return layer.mlp_width > 0 ? layer.mlp_width : intermediate_size;
  }
  // The largest intermediate size of MLPs that all rows go to; 0: there is none.
  int32_t mlp_width() const {
    int32_t width = shared_expert.intermediate_size;
    for (const LayerSpec& layer : layers) width = std::max(width, mlp_width(layer));
    return width;
  }
  // Whether a stage may begin with this layer: no layer of it attends to keys and values of a layer
  // before it.
  bool CanBeginStage(int32_t layer) const {
    return std::none_of(layers.begin() + layer, layers.end(), [layer](const LayerSpec& l) {
      return l.kv_source >= 0 && l.kv_source < layer;
    });
  }
  // Numbers of a row that a stage passes to the next one: the hidden state and, in a model with
  // LayerInputsSpec, the inputs of all layers.
  int32_t passed_width() const { return hidden_size + n_layers() * layer_inputs.width; }
  // Weights of the layer that every row is multiplied with: attention, MLP, shared expert.
  double WeightsOfEveryRow(const LayerSpec& layer) const;
  // Weights of all experts of a layer that has some.
  double WeightsOfExperts() const;
  int32_t n_layers() const { return static_cast<int32_t>(layers.size()); }
  int32_t n_recurrent(int32_t first, int32_t count) const {
    const auto begin = layers.begin() + first;
    return static_cast<int32_t>(
        std::count_if(begin, begin + count, [](const auto& l) { return l.is_recurrent; }));
  }
  // Bytes of one sequence's recurrent state over these layers.
  uint64_t StateBytes(int32_t first, int32_t count) const {
    if (!recurrent) return 0;
    return static_cast<uint64_t>(n_recurrent(first, count)) *
           static_cast<uint64_t>(recurrent->shape.state_elements()) * sizeof(float);
  }
};

// Reads MODEL_DIR/config.json, or the metadata if `model_dir` is a .gguf file; the same applies to
// the functions below. INVALID_ARGUMENT names every key that is missing, has the wrong type or is
// out of range. UNIMPLEMENTED names the architecture and the supported ones. NOT_FOUND names a
// missing file.
absl::StatusOr<ModelSpec> ReadModelSpec(const std::string& model_dir);

// MODEL_DIR/generation_config.json: the checkpoint's sampling defaults. If the file is absent, all
// fields are empty except the EOS ids, which come from config.json.
struct GenerationDefaults {
  std::map<std::string, double> sampling;  // by SamplingNumber::name; only those in the file
  std::optional<int32_t> max_new_tokens;
  std::vector<int32_t> eos_ids;  // a number or a list in the file
};
absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& model_dir);

// Locates MODEL: a folder or .gguf file, or `org/name` in the local Hugging Face cache
// (HF_HUB_CACHE, HF_HOME or ~/.cache/huggingface; the snapshot that refs/main names). If a folder's
// only weights are one .gguf file, returns that file. NOT_FOUND lists the places searched;
// INVALID_ARGUMENT lists several .gguf files to choose from.
absl::StatusOr<std::string> ResolveModelDir(const std::string& model);

}  // namespace stagecoach
