#include "deploy/check/check_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_replace.h"
#include "common/model/model_spec.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"
#include "deploy/check/model_facts.h"
#include "worker/loader/check_checkpoint.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::check {
namespace {

struct TokenizerKind {
  const char* file;
  const char* text;
};
// In the order in which text::Tokenizer looks for them.
constexpr TokenizerKind kTokenizers[] = {{"tokenizer.json", "tokenizer.json"},
                                         {"tokenizer.model", "SentencePiece (tokenizer.model)"},
                                         {"tekken.json", "tekken.json"},
                                         {"vocab.json", "BPE (vocab.json, merges.txt)"}};

constexpr uintmax_t kSmallTokenizerBytes = 2 << 20;  // read in about 0.2 s

// 0: there is no such file.
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
    if (spec_) Tensors();
    Template();
    if (options_.read_large_tokenizer || TokenizerIsSmall()) Tokenizer();
    return std::move(report_);
  }

 private:
  void Problem(Part part, const absl::Status& status) {
    Problem(part, std::string(status.message()));
  }
  void Problem(Part part, std::string text) {
    report_.problems.push_back({part, WithoutFolder(std::move(text))});
  }
  void Note(Part part, std::string text) {
    report_.notes.push_back({part, WithoutFolder(std::move(text))});
  }
  // The report names the folder once.
  std::string WithoutFolder(std::string text) const {
    if (!dir_.empty()) absl::StrReplaceAll({{dir_ + "/", ""}}, &text);
    return text;
  }

  void Config() {
    absl::StatusOr<ModelSpec> spec = ReadModelSpec(dir_);
    if (!spec.ok()) {
      Problem(Part::kConfig, spec.status());
      return;
    }
    spec_ = *std::move(spec);
    if (const auto defaults = ReadGenerationDefaults(dir_); !defaults.ok()) {
      Problem(Part::kConfig, defaults.status());
    }
  }

  void Tensors() {
    std::vector<DType> stored;
    if (options_.read_weights) {
      worker::StageWeights targets;
      const worker::WeightPlan plan = PlanWholeModel(*spec_, &targets);
      const worker::CheckpointVerdict verdict =
          worker::CheckCheckpoint(dir_, *spec_, plan.requests);
      for (const std::string& problem : verdict.problems) Problem(Part::kTensors, problem);
      for (const std::string& note : verdict.notes) Note(Part::kTensors, note);
      if (const auto source = worker::OpenCheckpoint(dir_, plan.requests); source.ok()) {
        for (size_t i = 0; i < plan.requests.size(); ++i) stored.push_back((*source)->dtype(i));
      }
    }
    absl::StatusOr<ModelFacts> facts =
        DescribeModel(*spec_, options_.dtype, stored, options_.n_stages);
    if (facts.ok()) {
      report_.facts = *std::move(facts);
    } else {
      Problem(Part::kModel, facts.status());
    }
  }

  void Template() {
    auto loaded = text::ChatTemplate::Load(dir_, options_.chat_template);
    if (loaded.ok()) {
      template_ = *std::move(loaded);
      report_.has_template = true;
    } else if (!absl::IsNotFound(loaded.status()) || !options_.chat_template.empty()) {
      Problem(Part::kTemplate, loaded.status());
    }
  }

  bool TokenizerIsSmall() const {
    uintmax_t bytes = FileBytes(dir_);  // a model in one file
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
    const std::vector<int32_t> chat = TokensOfAChat(**tokenizer);
    if (spec_ && !EmbeddingIsWrong()) EmbeddingHoldsTokens(**tokenizer, chat);
  }

  // What the template makes of the shortest conversation; empty without a template, or when the
  // template wants another one (some refuse a plain text).
  std::vector<int32_t> TokensOfAChat(const text::Tokenizer& tokenizer) {
    if (template_ == nullptr) return {};
    const auto rendered = template_->Render(R"([{"role": "user", "content": "Hello"}])", "", {});
    if (!rendered.ok()) {
      Note(Part::kTemplate, fmt::format("refuses a conversation of one user message: {}",
                                        std::string(rendered.status().message())));
      return {};
    }
    return tokenizer.EncodeRendered(rendered->text, rendered->plain)
        .value_or(std::vector<int32_t>());
  }

  // config.json's vocab_size then says nothing about its rows.
  bool EmbeddingIsWrong() const {
    return std::any_of(report_.problems.begin(), report_.problems.end(), [&](const Finding& f) {
      return f.part == Part::kTensors && f.text.find(spec_->names.embed) != std::string::npos;
    });
  }

  // Ids without a row are an error only where every chat would meet them: Gemma-3's text
  // checkpoints come with image tokens that only the multimodal ones have rows for.
  void EmbeddingHoldsTokens(const text::Tokenizer& tokenizer, std::span<const int32_t> chat) {
    const int32_t rows = spec_->vocab_size;
    const int32_t n_outside = tokenizer.vocab_size() - rows;
    if (n_outside <= 0) return;
    std::string ids = fmt::format("{} (\"{}\")", rows, tokenizer.TokenBytes(rows));
    if (n_outside > 1) {
      ids += fmt::format(" to {} (\"{}\")", rows + n_outside - 1,
                         tokenizer.TokenBytes(rows + n_outside - 1));
    }
    const std::string what =
        fmt::format("the tokenizer has {} tokens, the embedding {} rows: {} {} no row",
                    tokenizer.vocab_size(), rows, ids, n_outside == 1 ? "has" : "have");
    const auto outside =
        std::find_if(chat.begin(), chat.end(), [&](int32_t id) { return id >= rows; });
    if (outside == chat.end()) {
      Note(Part::kTokenizer, what + (n_outside == 1 ? "; requests that use it are refused"
                                                    : "; requests that use them are refused"));
      return;
    }
    report_.problems.push_back(
        {Part::kTokenizer,
         fmt::format(
             "{}, and the chat template writes {}. Serve the tokenizer that the weights were "
             "trained with, or resize the embedding (transformers: "
             "model.resize_token_embeddings(len(tokenizer))) and train the new rows",
             what, *outside)});
  }

  const CheckOptions& options_;
  std::string dir_;
  std::optional<ModelSpec> spec_;
  std::shared_ptr<const text::ChatTemplate> template_;
  ModelReport report_;
};

}  // namespace

ModelReport CheckModel(const CheckOptions& options) { return Checker(options).Run(); }

}  // namespace stagecoach::check
