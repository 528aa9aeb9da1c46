#include "cli/check/check_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cli/check/merge_lines.h"
#include "cli/check/model_facts.h"
#include "common/config/kv_tiers.h"
#include "common/config/load_config.h"
#include "common/env_switch.h"
#include "common/host_memory.h"
#include "common/model/device_support.h"
#include "common/model/kv_support.h"
#include "common/model/model_spec.h"
#include "common/size.h"
#include "common/text/chat_template.h"
#include "common/text/embedding_rows.h"
#include "common/text/tokenizer.h"
#include "router/sizing/kv_sizing.h"
#include "router/sizing/step_limits.h"
#include "worker/loader/check_checkpoint.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::check {
namespace {

struct TokenizerKind {
  const char* file;
  const char* text;
};
// The order in which text::Tokenizer looks for the files.
constexpr TokenizerKind kTokenizers[] = {{"tokenizer.json", "tokenizer.json"},
                                         {"tokenizer.model", "SentencePiece (tokenizer.model)"},
                                         {"tekken.json", "tekken.json"},
                                         {"vocab.json", "BPE (vocab.json, merges.txt)"}};

constexpr uintmax_t kSmallTokenizerBytes = 2 << 20;  // read in about 0.2 s

// Returns 0 if there is no such file.
uintmax_t FileBytes(const std::string& path) {
  std::error_code none;
  const uintmax_t bytes = std::filesystem::file_size(path, none);
  return none ? 0 : bytes;
}

class Checker {
 public:
  explicit Checker(const CheckOptions& options) : options_(options) {
    report_.model = options.model;
  }

  ModelReport Run() {
    absl::StatusOr<std::string> dir = ResolveModelDir(options_.model);
    if (!dir.ok()) {
      Problem(Part::kModel, dir.status());
      return std::move(report_);
    }
    report_.model = dir_ = *std::move(dir);
    Config();
    if (spec_) TensorsAndMemory(*spec_);
    Template();
    if (options_.read_large_tokenizer || TokenizerIsSmall()) Tokenizer();
    return std::move(report_);
  }

 private:
  void Problem(Part part, const absl::Status& status) {
    Problem(part, std::string(status.message()));
  }
  void Problem(Part part, std::string text) {
    text = WithoutFolder(std::move(text));
    // A truncated .gguf file gives the same problem for config, tensors and tokenizer; report it
    // once.
    const bool is_known = std::any_of(report_.problems.begin(), report_.problems.end(),
                                      [&](const Finding& f) { return f.text == text; });
    if (!is_known) report_.problems.push_back({part, std::move(text)});
  }
  void Note(Part part, std::string text) {
    report_.notes.push_back({part, WithoutFolder(std::move(text))});
  }
  // Removes the folder or file from a text, because the report's head names it.
  std::string WithoutFolder(std::string text) const {
    if (dir_.empty()) return text;
    absl::StrReplaceAll({{dir_ + "/", ""}}, &text);
    // Only a prefix is removed; inside a sentence the name is needed.
    return std::string(absl::StripPrefix(text, dir_ + ": "));
  }

  void Config() {
    absl::StatusOr<ModelSpec> spec = ReadModelSpec(dir_);
    if (!spec.ok()) {
      Problem(Part::kConfig, spec.status());
      return;
    }
    spec_ = *std::move(spec);
    for (const std::string& note : spec_->notes) Note(Part::kConfig, note);
    if (const absl::Status runs = CheckRunsOnGpus(*spec_); !runs.ok()) {
      if (options_.on_gpus) {
        Problem(Part::kConfig, runs);
      } else {
        Note(Part::kConfig, std::string(runs.message()));
      }
    }
    const absl::Status kv = CheckKvDType(*spec_, KvDTypeOf(options_.config, spec_->stored_dtype));
    if (!kv.ok()) Problem(Part::kConfig, kv);
    if (const auto defaults = ReadGenerationDefaults(dir_); !defaults.ok()) {
      Problem(Part::kConfig, defaults.status());
    }
  }

  void TensorsAndMemory(const ModelSpec& spec) {
    if (const absl::Status config = CheckLoadConfig(options_.config); !config.ok()) {
      Problem(Part::kModel, config);
    }
    if (options_.on_gpus && QuantizeTo(options_.config) && spec.experts.n_experts > 0 &&
        !GpusKeepAnyExperts()) {
      Problem(Part::kModel,
              fmt::format(
                  "--quantize: GPUs do not keep the weights of experts quantized with {}=off in "
                  "the environment",
                  kPackedExpertsSwitch));
    }
    std::vector<Storage> stored;
    if (options_.config.load_format() != v1::LOAD_FORMAT_DUMMY) {
      worker::StageWeights targets;
      const worker::WeightPlan plan = PlanWholeModel(spec, &targets);
      const worker::CheckpointOptions checkpoint(dir_, options_.config.adapter_dir(),
                                                 QuantizeTo(options_.config));
      const worker::CheckpointVerdict verdict =
          worker::CheckCheckpoint(checkpoint, spec, plan.requests);
      for (const std::string& line : MergeLines(verdict.problems)) Problem(Part::kTensors, line);
      for (const std::string& line : MergeLines(verdict.notes)) Note(Part::kTensors, line);
      if (const auto source = worker::OpenCheckpoint(checkpoint, plan.requests); source.ok()) {
        for (size_t i = 0; i < plan.requests.size(); ++i) {
          stored.push_back({(*source)->dtype(i), (*source)->encoding(i)});
        }
      } else if (verdict.ok()) {
        Problem(Part::kTensors, source.status());
      }
    }
    absl::StatusOr<ModelFacts> facts =
        DescribeModel(spec, options_.config, stored, options_.n_stages, options_.on_gpus);
    if (!facts.ok()) {
      Problem(Part::kModel, facts.status());
      return;
    }
    if (options_.config.kv_memory_bytes() > 0) KvMemory(spec, *facts);
    report_.facts = *std::move(facts);
  }

  void KvMemory(const ModelSpec& spec, const ModelFacts& facts) {
    const int32_t max_model_len = options_.config.max_model_len();
    if (max_model_len > spec.max_positions) return;  // the router reports this
    const uint64_t all_bytes = options_.config.kv_memory_bytes() * facts.stages.size();
    const uint64_t there_is = ReadHostMemory().total_bytes;
    if (!options_.on_gpus && all_bytes > there_is) {
      Problem(Part::kMemory, fmt::format("--kv-memory: {} is more than the {} of this machine",
                                         FormatBytes(all_bytes), FormatBytes(there_is)));
      return;
    }
    std::vector<router::StageKvMemory> stages;
    for (const StageFacts& stage : facts.stages) {
      stages.push_back({.name = fmt::format("stage {}", stages.size()),
                        .kv_bytes = options_.config.kv_memory_bytes(),
                        .block_bytes = stage.kv_block_bytes,
                        .state_bytes = stage.state_bytes});
    }
    const v1::LoadConfig config =
        router::WithDefaults(options_.config, options_.on_gpus, stages.size());
    const bool fixed = max_model_len > 0;
    const auto plan = router::SizeKv(spec.kv_groups, stages,
                                     {.max_sequences = config.max_sequences(),
                                      .max_batched_tokens = config.max_batched_tokens(),
                                      .max_prefill_chunk = config.max_prefill_chunk(),
                                      .max_model_len = fixed ? max_model_len : spec.max_positions,
                                      .max_model_len_is_fixed = fixed});
    if (!plan.ok()) Problem(Part::kMemory, plan.status());
  }

  void Template() {
    const auto loaded = text::ChatTemplate::Load(dir_, options_.chat_template);
    if (!loaded.ok()) {
      const bool has_none = absl::IsNotFound(loaded.status()) && options_.chat_template.empty();
      if (!has_none) Problem(Part::kTemplate, loaded.status());
      return;
    }
    report_.has_template = true;
    // Only a note: some templates require content as a list of parts, or a system message.
    const auto rendered = (*loaded)->Render(R"([{"role": "user", "content": "Hello"}])", "", {});
    if (!rendered.ok()) {
      Note(Part::kTemplate, fmt::format("refuses a conversation of one user message: {}",
                                        std::string(rendered.status().message())));
    }
  }

  bool TokenizerIsSmall() const {
    uintmax_t bytes = FileBytes(dir_);  // nonzero if dir_ is a .gguf file
    for (const TokenizerKind& kind : kTokenizers) bytes += FileBytes(dir_ + "/" + kind.file);
    return bytes <= kSmallTokenizerBytes;
  }

  std::string TokenizerName() const {
    for (const TokenizerKind& kind : kTokenizers) {
      if (FileBytes(dir_ + "/" + kind.file) > 0) return kind.text;
    }
    return "in the .gguf file";
  }

  void Tokenizer() {
    const auto tokenizer = text::Tokenizer::Load(dir_);
    if (!tokenizer.ok()) {
      Problem(Part::kTokenizer, tokenizer.status());
      return;
    }
    report_.tokenizer = {.kind = TokenizerName(), .n_tokens = (*tokenizer)->vocab_size()};
    if (!spec_ || EmbeddingIsWrong()) return;
    if (absl::Status rows = text::CheckEmbeddingRows(**tokenizer, spec_->vocab_size); !rows.ok()) {
      Problem(Part::kTokenizer, rows);
    }
  }

  // If the embedding tensor is wrong, config.json's vocab_size says nothing about its rows.
  bool EmbeddingIsWrong() const {
    return std::any_of(report_.problems.begin(), report_.problems.end(), [&](const Finding& f) {
      return f.part == Part::kTensors && f.text.find(spec_->names.embed) != std::string::npos;
    });
  }

  const CheckOptions& options_;
  std::string dir_;
  std::optional<ModelSpec> spec_;
  ModelReport report_;
};

}  // namespace

ModelReport CheckModel(const CheckOptions& options) { return Checker(options).Run(); }

}  // namespace stagecoach::check
