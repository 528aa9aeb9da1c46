#include "worker/model/stage_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "common/check.h"
#include "common/config/load_config.h"
#include "common/float_convert.h"
#include "common/model/device_support.h"
#include "common/model/kv_support.h"
#include "common/status.h"
#include "worker/model/check_room.h"
#include "worker/model/decode_sizes.h"
#include "worker/model/decoder.h"
#include "worker/model/kv_cache.h"
#include "worker/model/last_rows.h"
#include "worker/model/recurrent_states.h"
#include "worker/model/rope_table.h"
#include "worker/model/scratch_sizes.h"
#include "worker/model/weights.h"

namespace stagecoach::worker {
namespace {

float RoundTo(DType dtype, float value) {
  uint32_t stored = 0;
  StoreElement(&stored, dtype, 0, value);
  return LoadElement(&stored, dtype, 0);
}

absl::Status CheckOptions(const StageModelOptions& options, const ModelSpec& spec) {
  const auto error = [](const std::string& text) { return absl::InvalidArgumentError(text); };
  if (options.first_layer < 0 || options.n_layers < 1 ||
      options.n_layers > spec.n_layers() - options.first_layer) {
    return error(fmt::format("layers {} to {} are not a range of {}'s {} layers",
                             options.first_layer, options.first_layer + options.n_layers - 1,
                             options.model_dir, spec.n_layers()));
  }
  if (options.is_first != (options.first_layer == 0) ||
      options.is_last != (options.first_layer + options.n_layers == spec.n_layers())) {
    return error("layer 0 must be on the first stage and the last layer on the last stage");
  }
  for (const int32_t border : {options.first_layer, options.first_layer + options.n_layers}) {
    if (border >= spec.n_layers() || spec.CanBeginStage(border)) continue;
    return error(fmt::format(
        "a stage of {} cannot begin with layer {}: this or a later layer attends to the keys and "
        "values of a layer before it",
        options.model_dir, border));
  }
  if (options.config.max_batched_tokens() < 1 || options.config.max_sequences() < 1) {
    return error("max_batched_tokens and max_sequences must be 1 or more");
  }
  if (options.config.max_model_len() < 1 || options.config.max_model_len() > spec.max_positions) {
    return error(fmt::format("max_model_len {} must be from 1 to {}, the number of positions of {}",
                             options.config.max_model_len(), spec.max_positions,
                             options.model_dir));
  }
  return absl::OkStatus();
}

class StageModelImpl final : public StageModel {
 public:
  StageModelImpl(const StageModelOptions& options, ModelSpec spec, kernels::Ops* ops)
      : options_(options),
        spec_(std::move(spec)),
        ops_(ops),
        kv_(spec_, options.first_layer, options.n_layers,
            KvDTypeOf(options.config, spec_.stored_dtype)),
        states_(spec_, options.first_layer, options.n_layers),
        act_dtype_(ops->ActivationDType(DTypeOf(options.config).value_or(spec_.stored_dtype))),
        last_rows_(options.config.max_sequences()) {
    indices_.reserve(static_cast<size_t>(options.config.max_sequences()));
  }

  absl::Status Init(const LoadProgressFn& progress) {
    SC_ASSIGN_OR_RETURN(weights_, LoadWeights(options_, spec_, ops_, progress));
    SC_RETURN_IF_ERROR(AllocateScratch());
    SC_RETURN_IF_ERROR(MakeRopeTables());
    return ops_->Synchronize();
  }

  const ModelSpec& spec() const override { return spec_; }
  uint64_t weights_bytes() const override { return weights_->n_bytes; }
  std::map<std::string, uint64_t> weights_by_encoding() const override {
    return weights_->bytes_by_encoding;
  }
  uint64_t scratch_bytes() const override { return scratch_bytes_; }
  std::vector<uint64_t> kv_block_bytes() const override { return kv_.block_bytes(); }
  std::vector<KvPart> kv_parts() const override { return kv_.parts(); }
  uint64_t state_bytes() const override {
    return spec_.StateBytes(options_.first_layer, options_.n_layers);
  }
  absl::Status AllocateStates(uint64_t n_states) override {
    if (spec_.recurrent) recordings_.clear();  // they refer to the old states
    return states_.Allocate(n_states, ops_);
  }
  std::vector<KvPart> state_parts() const override { return states_.parts(); }
  void* state(size_t part, uint32_t number) override { return states_.state(part, number); }
  void ExportKv(size_t part, std::span<const kernels::KvBlockCopy> copies, void* host,
                size_t place_bytes) override {
    ops_->ExportKv(KvCopy(part, copies, host, place_bytes));
  }
  void ImportKv(size_t part, std::span<const kernels::KvBlockCopy> copies, void* host,
                size_t place_bytes) override {
    ops_->ImportKv(KvCopy(part, copies, host, place_bytes));
  }
  int32_t max_logit_rows() const override { return max_logit_rows_; }
  float* hidden_buffer() override { return hidden_.As<float>(); }
  void* passed_buffer() override {
    return is_passed_rounded() ? passed_.data.get() : hidden_.data.get();
  }
  int32_t* sampled_tokens() override { return step_->sampled; }

  absl::Status AllocateKv(std::span<const uint64_t> n_blocks,
                          const LastingMemory& memory) override {
    recordings_.clear();  // they refer to the old cache
    return kv_.Allocate(n_blocks, memory, ops_);
  }

  absl::Status Prepare(const std::function<void(int32_t, int32_t)>& progress) override {
    const std::vector<int32_t> sizes = DecodeSizes(
        std::min(options_.config.max_sequences(), options_.config.max_batched_tokens()));
    last_rows_.ChooseAll();
    const int32_t id = 0;
    const kernels::StepSeq seq{.slot = 0, .position = 0, .n_tokens = 1};
    for (size_t i = 0; i < sizes.size(); ++i) {
      ops_->BuildStep(
          {.seqs = {&seq, 1}, .token_ids = {&id, 1}, .n_tokens = 1, .n_padding = sizes[i] - 1},
          step_.get());
      SC_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Recording> recording,
                          ops_->Record([this] { RunLayers(hidden_buffer()); }));
      if (recording == nullptr) return absl::OkStatus();
      recordings_[sizes[i]] = std::move(recording);
      if (progress) progress(static_cast<int32_t>(i + 1), static_cast<int32_t>(sizes.size()));
    }
    return ops_->Synchronize();
  }

  void Forward(const kernels::StepBatch& batch, float* hidden, LogitRows logit_rows) override {
    SC_CHECK(!options_.is_first || batch.token_ids.size() == static_cast<size_t>(batch.n_tokens));
    if (batch.n_tokens == 0) return;  // the step only ends sequences
    last_rows_.ChooseAll();
    // A recurrent layer and an output gate need all rows.
    if (options_.is_last && logit_rows && !spec_.attn_gate && !spec_.recurrent) {
      last_rows_.Choose(batch, *logit_rows);
    }
    const bool is_decode = static_cast<size_t>(batch.n_tokens) == batch.seqs.size();
    const auto recording =
        is_decode && hidden == hidden_buffer() ? RecordingFor(batch.n_tokens) : recordings_.end();
    if (recording != recordings_.end()) {
      kernels::StepBatch padded = batch;
      padded.n_padding = recording->first - batch.n_tokens;
      ops_->BuildStep(padded, step_.get());
      states_.Copy(batch.state_copies, ops_);
      recording->second->Replay();
      return;
    }
    ops_->BuildStep(batch, step_.get());
    states_.Copy(batch.state_copies, ops_);
    state_saves_ = batch.state_saves;
    RunLayers(hidden);
    state_saves_ = {};
  }

  float* Logits(const float* hidden, std::span<const int32_t> rows) override {
    const int32_t n_rows = static_cast<int32_t>(rows.size());
    SC_CHECK(!spec_.pooling);
    float* const logits = logits_.As<float>();
    const kernels::Act normed(logit_normed_.data.get(), act_dtype_);
    TakeNormed(hidden, rows, normed);
    if (n_rows == 0) return logits;
    kernels::ConstAct x = normed;
    if (is_projected()) {
      const kernels::Act projected(logit_projected_.data.get(), act_dtype_);
      Gemm(x, weights_->project_out, projected, n_rows, /*add_to_y=*/false);
      x = projected;
    }
    Gemm(x, weights_->output_matrix(), logits, n_rows, /*add_to_y=*/false);
    if (spec_.logit_softcap > 0) {
      ops_->SoftCap(logits, int64_t{n_rows} * spec_.vocab_size, spec_.logit_softcap);
    }
    return logits;
  }

  const float* FinalHidden(const float* hidden, std::span<const int32_t> rows) override {
    SC_CHECK(spec_.pooling);
    TakeNormed(hidden, rows, logit_hidden_.As<float>());
    return logit_hidden_.As<float>();
  }

 private:
  using Recordings = std::map<int32_t, std::unique_ptr<kernels::Recording>>;

  Recordings::const_iterator RecordingFor(int32_t n_rows) const {
    // In a message, inputs of layers follow the hidden states of its rows; in a recording, also
    // those of the padding.
    const bool passes_inputs =
        spec_.layer_inputs.width > 0 && !(options_.is_first && options_.is_last);
    return passes_inputs ? recordings_.find(n_rows) : recordings_.lower_bound(n_rows);
  }

  // Writes `rows` of the step to `out` [R, H], after the final norm.
  void TakeNormed(const float* hidden, std::span<const int32_t> rows, kernels::Act out) {
    const int32_t n_rows = static_cast<int32_t>(rows.size());
    SC_CHECK(options_.is_last && n_rows <= max_logit_rows_);
    if (n_rows == 0) return;
    const bool has_norm = weights_->final_norm.bytes > 0;
    if (last_rows_.chosen()) {
      indices_.clear();
      for (const int32_t row : rows) indices_.push_back(last_rows_.IndexOf(row));
      rows = indices_;
      hidden = last_hidden_.As<float>();
    }
    ops_->Upload(rows.data(), logit_rows_.As<int32_t>(), rows.size_bytes());
    ops_->GatherRows({.x = hidden,
                      .rows = logit_rows_.As<int32_t>(),
                      .out = has_norm ? kernels::Act(logit_hidden_.As<float>()) : out,
                      .n_rows = n_rows,
                      .width = spec_.hidden_size});
    if (!has_norm) return;
    ops_->Norm({.x = logit_hidden_.As<float>(),
                .weight = weights_->final_norm.As<float>(),
                .bias = weights_->final_norm_bias.As<float>(),
                .out = out,
                .n_rows = n_rows,
                .width = spec_.hidden_size,
                .kind = spec_.norm,
                .eps = static_cast<float>(spec_.norm_eps),
                .add_to_out = false});
  }
  kernels::KvCopyArgs KvCopy(size_t part, std::span<const kernels::KvBlockCopy> copies, void* host,
                             size_t place_bytes) const {
    const int32_t layer = kv_.parts().at(part).layer;
    const HeadShape heads = spec_.heads(spec_.layers[static_cast<size_t>(layer)]);
    return {.kv = kv_.layer(layer - options_.first_layer),
            .n_kv_heads = heads.n_kv_heads,
            .head_dim = heads.head_dim,
            .copies = copies,
            .host = host,
            .place_bytes = place_bytes};
  }
  // Runs the layers of the step built last.
  void RunLayers(float* hidden) {
    const kernels::Act passed(passed_buffer(), HiddenDTypeOf(options_.config));
    const int64_t n_passed = int64_t{step_->n_tokens} * spec_.passed_width();
    if (options_.is_first) {
      Embed(hidden);
    } else if (is_passed_rounded()) {
      ops_->Convert(passed, hidden, n_passed);
    }
    // Behind the hidden states: [T, n_layers, width].
    float* const row_inputs = hidden + int64_t{step_->n_tokens} * spec_.hidden_size;
    if (options_.is_first && spec_.layer_inputs.width > 0) EmbedInputs(hidden, row_inputs);
    const int32_t n_of_all_rows =
        last_rows_.chosen() ? LastWithKeys() : static_cast<int32_t>(options_.n_layers);
    for (int32_t i = 0; i < n_of_all_rows; ++i) {
      RunLayer(spec_, InputsOf(i, row_inputs), *step_, layer_scratch_, hidden, ops_);
      ++*options_.work;
    }
    if (last_rows_.chosen()) RunLastRows(n_of_all_rows, hidden, row_inputs);
    if (is_passed_rounded() && !options_.is_last) ops_->Convert(hidden, passed, n_passed);
  }

  // The stage's last layer with keys and values of its own.
  int32_t LastWithKeys() const {
    int32_t i = options_.n_layers - 1;
    while (spec_.layers[static_cast<size_t>(options_.first_layer + i)].kv_source >= 0) --i;
    return i;
  }

  // row_inputs: [T, n_layers, width]; read only with ModelSpec::layer_inputs
  LayerInputs InputsOf(int32_t i, const float* row_inputs) const {
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(options_.first_layer + i)];
    const kernels::RopeTable* rope = spec_.learned_positions || layer.rope < 0
                                         ? nullptr
                                         : &ropes_[static_cast<size_t>(layer.rope)];
    LayerInputs inputs{.weights = weights_->layers[static_cast<size_t>(i)],
                       .layer = layer,
                       .rope = rope,
                       .kv = {},
                       .states = nullptr,
                       .saves = {}};
    if (const int32_t width = spec_.layer_inputs.width; width > 0) {
      inputs.row_inputs = row_inputs + int64_t{options_.first_layer + i} * width;
      inputs.row_inputs_stride = int64_t{spec_.n_layers()} * width;
    }
    if (layer.is_recurrent) {
      inputs.states = states_.layer(i);
      inputs.saves = state_saves_;
    } else if (layer.has_mixer) {
      inputs.kv = kv_.layer(i);
    }
    return inputs;
  }

  // Runs layer `first`, the last one with keys and values of its own, and those after it: keys and
  // values for all rows, everything else for last_rows_ only.
  void RunLastRows(int32_t first, float* hidden, const float* row_inputs) {
    const LayerInputs inputs = InputsOf(first, row_inputs);
    AppendKeys(spec_, inputs, *step_, layer_scratch_, hidden, ops_);
    const std::span<const int32_t> rows = last_rows_.rows();
    if (rows.empty()) {
      *options_.work += options_.n_layers - first;
      return;
    }
    ops_->Upload(rows.data(), last_row_ids_.As<int32_t>(), rows.size_bytes());
    const auto gather = [&](kernels::ConstAct x, kernels::Act out, int32_t width) {
      ops_->GatherRows({.x = x,
                        .rows = last_row_ids_.As<int32_t>(),
                        .out = out,
                        .n_rows = static_cast<int32_t>(rows.size()),
                        .width = width});
    };
    LayerScratch scratch = layer_scratch_;
    scratch.qkv = AsAct(last_qkv_);
    gather(layer_scratch_.qkv, scratch.qkv, spec_.heads(inputs.layer).qkv_width());
    gather(hidden, last_hidden_.As<float>(), spec_.hidden_size);
    float* const last_inputs =
        last_hidden_.As<float>() + int64_t{std::ssize(rows)} * spec_.hidden_size;
    if (const int32_t width = spec_.layer_inputs.width; width > 0) {
      gather(row_inputs, last_inputs, spec_.n_layers() * width);
    }
    ops_->BuildStep(last_rows_.step(), step_.get());
    FinishLayer(spec_, InputsOf(first, last_inputs), *step_, scratch, last_hidden_.As<float>(),
                ops_);
    ++*options_.work;
    for (int32_t i = first + 1; i < options_.n_layers; ++i) {
      RunLayer(spec_, InputsOf(i, last_inputs), *step_, layer_scratch_, last_hidden_.As<float>(),
               ops_);
      ++*options_.work;
    }
  }

  // Whether hidden states come or leave in another type than float32.
  bool is_passed_rounded() const { return passed_.bytes > 0; }
  bool is_projected() const { return spec_.embed_size != spec_.hidden_size; }

  void Gemm(kernels::ConstAct x, const kernels::Matrix& w, kernels::Act y, int32_t n_rows,
            bool add_to_y) {
    ops_->Gemm({.x = x, .w = &w, .bias = nullptr, .y = y, .n_rows = n_rows, .add_to_y = add_to_y});
  }

  void Embed(float* hidden) {
    const kernels::Matrix& table = weights_->embed;
    // transformers multiplies the embedding by the scale in the embedding's dtype. A table that
    // stays quantized stands for one in the model's dtype.
    const DType scale_dtype = table.parts.empty() ? table.dtype : spec_.stored_dtype;
    kernels::EmbedArgs args{
        .ids = step_->token_ids,
        .table = &table,
        .scale = RoundTo(scale_dtype, spec_.embed_scale),
        .positions = step_->positions,
        .position_table = spec_.learned_positions ? &weights_->positions : nullptr,
        .position_offset = spec_.position_offset,
        .out = hidden,
        .n_tokens = step_->n_tokens};
    if (!is_projected()) {
      ops_->Embed(args);
      return;
    }
    // Token embeddings are projected, position embeddings are not.
    if (spec_.learned_positions) {
      args.table = nullptr;
      ops_->Embed(args);
      args.table = &table;
      args.position_table = nullptr;
    }
    args.out = kernels::Act(embedded_.data.get(), act_dtype_);
    ops_->Embed(args);
    Gemm(args.out, weights_->project_in, hidden, args.n_tokens,
         /*add_to_y=*/spec_.learned_positions);
  }

  // See LayerInputsSpec. embedded: [T, H]; out: [T, n_layers, width]
  void EmbedInputs(const float* embedded, float* out) {
    const LayerInputsSpec& inputs = spec_.layer_inputs;
    const int32_t n_tokens = step_->n_tokens;
    ops_->Embed({.ids = step_->token_ids,
                 .table = &weights_->input_embed,
                 .scale = std::sqrt(static_cast<float>(inputs.width)) * kInputShare,
                 .positions = step_->positions,
                 .position_table = nullptr,
                 .position_offset = 0,
                 .out = out,
                 .n_tokens = n_tokens});
    float* const projected = projected_.As<float>();
    kernels::ConstAct x = embedded;
    if (act_dtype_ != DType::kF32) {
      ops_->GatherRows({.x = embedded,
                        .rows = nullptr,
                        .out = layer_scratch_.normed,
                        .n_rows = n_tokens,
                        .width = spec_.hidden_size});
      x = layer_scratch_.normed;
    }
    Gemm(x, weights_->input_project, projected, n_tokens, /*add_to_y=*/false);
    // The norm of the projection times hidden_size^-0.5 is that of the projection, with another
    // eps.
    const double eps = spec_.norm_eps * spec_.hidden_size;
    ops_->Norm({.x = projected,
                .weight = weights_->input_norm.As<float>(),
                .bias = nullptr,
                .out = out,
                .n_rows = n_tokens * spec_.n_layers(),
                .width = inputs.width,
                .kind = spec_.norm,
                .eps = static_cast<float>(eps),
                .add_to_out = true});
  }

  absl::StatusOr<kernels::Buffer> Scratch(size_t bytes) {
    scratch_bytes_ += bytes;
    return ops_->Allocate(bytes);
  }
  kernels::Act AsAct(const kernels::Buffer& buffer) const {
    return {buffer.data.get(), act_dtype_};
  }

  absl::Status AllocateScratch() {
    const bool has_experts = spec_.experts.n_experts > 0;
    kernels::StepLimits limits = StepLimitsOf(options_, spec_);
    const ScratchSizes sizes = SizeScratch(
        options_, spec_,
        {.act_dtype = act_dtype_,
         .runs_ahead = ops_->runs_ahead(),
         .attention_bytes = ops_->AttentionScratchBytes(limits),
         .expert_bytes =
             has_experts ? ops_->ExpertScratchBytes(ExpertShapeOf(options_, spec_)) : 0});
    SC_RETURN_IF_ERROR(CheckRoom(
        *ops_, "buffers for a step", sizes.total(),
        "lower --max-batched-tokens or --max-sequences, or spread the model over more stages"));
    SC_ASSIGN_OR_RETURN(hidden_, Scratch(sizes.hidden));
    if (sizes.passed > 0) {
      SC_ASSIGN_OR_RETURN(passed_, Scratch(sizes.passed));
    }
    SC_ASSIGN_OR_RETURN(normed_, Scratch(sizes.normed));
    SC_ASSIGN_OR_RETURN(inner_, Scratch(sizes.inner));
    void* const attn = inner_.As<char>() + sizes.attn_start;
    layer_scratch_ = {.normed = AsAct(normed_), .qkv = AsAct(inner_), .attn = {attn, act_dtype_}};
    if (sizes.mlp > 0) {
      SC_ASSIGN_OR_RETURN(mlp_, Scratch(sizes.mlp));
    }
    if (spec_.mlp_width() > 0) {
      layer_scratch_.mlp = AsAct(mlp_);
      layer_scratch_.activation = AsAct(spec_.gated_mlp ? inner_ : mlp_);
    }
    if (spec_.latent) SC_RETURN_IF_ERROR(AllocateLatentScratch(sizes));
    if (sizes.projected > 0) {
      SC_ASSIGN_OR_RETURN(projected_, Scratch(sizes.projected));
      layer_scratch_.projected = projected_.As<float>();
    }
    if (sizes.mixed > 0) {
      SC_ASSIGN_OR_RETURN(mixed_, Scratch(sizes.mixed));
      layer_scratch_.mixed = mixed_.As<float>();
    }
    limits.attention_scratch = mlp_.data.get();
    limits.attention_scratch_bytes = mlp_.bytes;
    if (has_experts) SC_RETURN_IF_ERROR(AllocateExpertScratch(sizes));
    if (sizes.embedded > 0) {
      SC_ASSIGN_OR_RETURN(embedded_, Scratch(sizes.embedded));
    }
    if (options_.is_last) SC_RETURN_IF_ERROR(AllocateLastScratch(sizes));
    SC_ASSIGN_OR_RETURN(step_, ops_->NewStepInputs(limits));
    scratch_bytes_ += step_->n_bytes;
    return absl::OkStatus();
  }

  absl::Status AllocateLatentScratch(const ScratchSizes& sizes) {
    SC_ASSIGN_OR_RETURN(head_rows_, Scratch(sizes.head_rows));
    SC_ASSIGN_OR_RETURN(latents_, Scratch(sizes.latents));
    layer_scratch_.head_rows = AsAct(head_rows_);
    layer_scratch_.latents = latents_.As<float>();
    if (sizes.q_latents == 0) return absl::OkStatus();
    SC_ASSIGN_OR_RETURN(q_latents_, Scratch(sizes.q_latents));
    layer_scratch_.q_latents = q_latents_.As<float>();
    return absl::OkStatus();
  }

  absl::Status AllocateExpertScratch(const ScratchSizes& sizes) {
    SC_ASSIGN_OR_RETURN(router_logits_, Scratch(sizes.router_logits));
    SC_ASSIGN_OR_RETURN(chosen_experts_, Scratch(sizes.experts));
    SC_ASSIGN_OR_RETURN(expert_weights_, Scratch(sizes.expert_weights));
    SC_ASSIGN_OR_RETURN(expert_scratch_, Scratch(sizes.expert_scratch));
    layer_scratch_.router_logits = router_logits_.As<float>();
    layer_scratch_.experts = chosen_experts_.As<int32_t>();
    layer_scratch_.expert_weights = expert_weights_.As<float>();
    layer_scratch_.expert_scratch = expert_scratch_.data.get();
    if (sizes.dense_out == 0) return absl::OkStatus();
    SC_ASSIGN_OR_RETURN(dense_out_, Scratch(sizes.dense_out));
    SC_ASSIGN_OR_RETURN(expert_out_, Scratch(sizes.expert_out));
    layer_scratch_.dense_out = dense_out_.As<float>();
    layer_scratch_.expert_out = expert_out_.As<float>();
    return absl::OkStatus();
  }

  absl::Status AllocateLastScratch(const ScratchSizes& sizes) {
    SC_ASSIGN_OR_RETURN(last_row_ids_, Scratch(sizes.last_row_ids));
    SC_ASSIGN_OR_RETURN(last_qkv_, Scratch(sizes.last_qkv));
    SC_ASSIGN_OR_RETURN(last_hidden_, Scratch(sizes.last_hidden));
    max_logit_rows_ = sizes.max_logit_rows;
    SC_ASSIGN_OR_RETURN(logit_rows_, Scratch(sizes.logit_rows));
    SC_ASSIGN_OR_RETURN(logit_hidden_, Scratch(sizes.logit_hidden));
    if (spec_.pooling) return absl::OkStatus();
    SC_ASSIGN_OR_RETURN(logit_normed_, Scratch(sizes.logit_normed));
    if (is_projected()) {
      SC_ASSIGN_OR_RETURN(logit_projected_, Scratch(sizes.logit_projected));
    }
    SC_ASSIGN_OR_RETURN(logits_, Scratch(sizes.logits));
    return absl::OkStatus();
  }

  absl::Status MakeRopeTables() {
    for (const RopeSpec& rope : spec_.ropes) {
      const HostRopeTable host =
          MakeRopeTable(rope, spec_.head_dim, options_.config.max_model_len());
      const size_t bytes = host.cos.size() * sizeof(float);
      SC_ASSIGN_OR_RETURN(kernels::Buffer cos, Scratch(bytes));
      SC_ASSIGN_OR_RETURN(kernels::Buffer sin, Scratch(bytes));
      ops_->Upload(host.cos.data(), cos.data.get(), bytes);
      ops_->Upload(host.sin.data(), sin.data.get(), bytes);
      ropes_.push_back({cos.As<float>(), sin.As<float>(), host.rotary_dim});
      rope_buffers_.push_back(std::move(cos));
      rope_buffers_.push_back(std::move(sin));
    }
    return absl::OkStatus();
  }

  const StageModelOptions options_;
  const ModelSpec spec_;
  kernels::Ops* const ops_;
  KvCache kv_;
  RecurrentStates states_;
  std::span<const kernels::StateSave> state_saves_;  // of the step being run
  const DType act_dtype_;
  std::unique_ptr<StageWeights> weights_;
  std::unique_ptr<kernels::StepInputs> step_;
  LayerScratch layer_scratch_{};
  LastRows last_rows_;
  kernels::Buffer last_row_ids_;  // [max_sequences] int32, like the next two: for last_rows_
  kernels::Buffer last_qkv_;      // LayerScratch::qkv
  kernels::Buffer last_hidden_;   // [max_sequences, passed_width], laid out like `hidden`
  std::vector<int32_t> indices_;  // of the rows passed to Logits
  kernels::Buffer passed_;        // ScratchSizes::passed
  kernels::Buffer hidden_, normed_, mlp_;            // LayerScratch's
  kernels::Buffer inner_;                            // qkv and attn, or activation
  kernels::Buffer head_rows_, q_latents_, latents_;  // LayerScratch's, with latent attention
  // If the model has recurrent layers, output gates or inputs of layers.
  kernels::Buffer projected_, mixed_;
  kernels::Buffer router_logits_, chosen_experts_, expert_weights_, expert_scratch_;
  kernels::Buffer dense_out_, expert_out_;
  kernels::Buffer embedded_;               // [T, P]: if the embedding is projected
  kernels::Buffer logit_rows_;             // [R] int32
  kernels::Buffer logit_hidden_;           // [R, H]
  kernels::Buffer logit_normed_;           // [R, H]
  kernels::Buffer logit_projected_;        // [R, P]
  kernels::Buffer logits_;                 // [R, V]
  std::vector<kernels::RopeTable> ropes_;  // by ModelSpec::ropes
  std::vector<kernels::Buffer> rope_buffers_;
  // Captured decode steps, by number of rows.
  Recordings recordings_;
  int32_t max_logit_rows_ = 0;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StageModel>> StageModel::Load(const StageModelOptions& options,
                                                             kernels::Ops* ops,
                                                             const LoadProgressFn& progress) {
  SC_ASSIGN_OR_RETURN(ModelSpec spec, ReadModelSpec(options.model_dir));
  SC_RETURN_IF_ERROR(CheckOptions(options, spec));
  if (ops->has_own_memory()) SC_RETURN_IF_ERROR(CheckRunsOnGpus(spec));
  SC_RETURN_IF_ERROR(CheckKvDType(spec, KvDTypeOf(options.config, spec.stored_dtype)));
  auto model = std::make_unique<StageModelImpl>(options, std::move(spec), ops);
  SC_RETURN_IF_ERROR(model->Init(progress));
  return model;
}

}  // namespace stagecoach::worker
