#include "worker/loader/lora_adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>
#include <set>

#include "common/encoding/rows.h"
#include "common/status.h"
#include "worker/loader/lora_config.h"
#include "worker/loader/tensor_names.h"
#include "worker/loader/tensor_problems.h"

namespace stagecoach::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "base_model.model.";

// Parts of a name such as "model.layers.0.self_attn.q_proj.lora_A.default.weight".
struct LoraName {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  bool is_a = false;
  std::string adapter;  // "default"; empty in an adapter's own file
};

std::optional<LoraName> ParseLoraName(std::string_view name) {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (const std::string_view mark : {".lora_A.", ".lora_B."}) {
    const size_t at = name.find(mark);
    if (at == name.npos) continue;
    LoraName parsed{std::string(name.substr(0, at)), mark == ".lora_A.", ""};
    std::string_view rest = name.substr(at + mark.size());
    if (rest == "weight") return parsed;
    if (!rest.ends_with(".weight")) return std::nullopt;
    rest.remove_suffix(std::string_view(".weight").size());
    parsed.adapter = rest;
    return parsed;
  }
  return std::nullopt;
}

std::string ShapeText(const PlacedTensor& tensor) {
  return fmt::format("[{}, {}]", tensor.rows, tensor.cols);
}

std::vector<float> AllValues(RowReader& reader, const PlacedTensor& tensor) {
  const RowsView view = reader.Read(tensor, 0, tensor.rows);
  std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
  DecodeRows(CodeOf(view.dtype), view.data, static_cast<size_t>(tensor.rows),
             static_cast<size_t>(tensor.cols), values.data());
  return values;
}

// Adds factor * in to out [n].
void AddScaled(float factor, const float* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] += factor * in[i];
}

class MergedSource final : public WeightSource {
 public:
  MergedSource(std::unique_ptr<WeightSource> base, LoraAdapter adapter,
               std::span<const TensorRequest> requests)
      : base_(std::move(base)), adapter_(std::move(adapter)) {
    for (const TensorRequest& request : requests) {
      cols_.push_back(request.cols);
      pairs_.push_back(adapter_.Find(request));
    }
  }

  DType dtype(size_t request) const override { return base_->dtype(request); }
  std::optional<Encoding> encoding(size_t request) const override {
    return pairs_[request] == nullptr ? base_->encoding(request) : std::nullopt;
  }
  const void* StoredRows(size_t request, int64_t first_row, int64_t n_rows) override {
    return base_->StoredRows(request, first_row, n_rows);
  }
  std::span<const int32_t> InputOrder(size_t request) const override {
    return base_->InputOrder(request);
  }

  RowsView Rows(size_t request, int64_t first_row, int64_t n_rows) override {
    const RowsView base = base_->Rows(request, first_row, n_rows);
    const LoraPair* pair = pairs_[request];
    if (pair == nullptr) return base;
    if (current_ != request) {
      current_ = request;
      a_ = AllValues(reader_, pair->a);
      b_ = AllValues(reader_, pair->b);
    }
    const int64_t cols = cols_[request], rank = pair->a.rows;
    rows_.resize(static_cast<size_t>(n_rows * cols));
    DecodeRows(CodeOf(base.dtype), base.data, static_cast<size_t>(n_rows),
               static_cast<size_t>(cols), rows_.data());
    for (int64_t i = 0; i < n_rows; ++i) {
      for (int64_t k = 0; k < rank; ++k) {
        AddScaled(b_[static_cast<size_t>((first_row + i) * rank + k)] * pair->scale,
                  a_.data() + k * cols, cols, rows_.data() + i * cols);
      }
    }
    return {rows_.data(), DType::kF32};
  }

 private:
  std::unique_ptr<WeightSource> base_;
  LoraAdapter adapter_;
  std::vector<const LoraPair*> pairs_;  // pairs of adapter_, by request
  std::vector<int64_t> cols_;           // by request
  RowReader reader_;
  std::optional<size_t> current_;  // the request that a_ [r, cols] and b_ [rows, r] belong to
  std::vector<float> a_, b_, rows_;
};

}  // namespace

// Collects the pairs and everything that is wrong with them.
class LoraReader {
 public:
  LoraReader(const LoraConfig& config, LoraAdapter* adapter) : config_(config), adapter_(adapter) {}

  void Add(const std::string& name, const CheckpointFiles::Found& found) {
    const std::optional<LoraName> parsed = ParseLoraName(name);
    if (!parsed) {
      problems_.Add(name,
                    "is not a weight of a plain LoRA adapter and cannot be merged here; merge it "
                    "with peft (merge_and_unload)");
      return;
    }
    if (!found.file_error.ok()) {
      files_.insert(std::string(found.file_error.message()));
      return;
    }
    if (found.entry == nullptr || !found.entry->code || found.entry->shape.size() != 2) {
      problems_.Add(name, "is not a matrix of F32, BF16 or F16");
      return;
    }
    adapters_.insert(parsed->adapter);
    TensorRequest request{
        .name = name, .rows = found.entry->shape[0], .cols = found.entry->shape[1]};
    LoraPair& pair = adapter_->pairs_[parsed->module];
    (parsed->is_a ? pair.a : pair.b) = Place(request, found.file, found.entry);
  }

  absl::Status Finish() {
    for (auto& [module, pair] : adapter_->pairs_) {
      if (pair.a.stored == nullptr || pair.b.stored == nullptr) {
        problems_.Add(module, pair.a.stored == nullptr ? "has lora_B but no lora_A"
                                                       : "has lora_A but no lora_B");
      } else if (pair.a.rows != pair.b.cols || pair.a.rows == 0) {
        problems_.Add(module, fmt::format("lora_A {} and lora_B {} have different ranks",
                                          ShapeText(pair.a), ShapeText(pair.b)));
      } else {
        pair.scale = config_.Scale(module, pair.a.rows);
      }
    }
    std::vector<std::string> parts(files_.begin(), files_.end());
    if (adapters_.size() > 1) {
      parts.push_back(fmt::format("holds {} adapters ({}); merge the one that you want with peft",
                                  adapters_.size(), fmt::join(adapters_, ", ")));
    }
    if (!problems_.empty()) parts.push_back(problems_.Describe());
    if (parts.empty() && adapter_->pairs_.empty()) parts.push_back("holds no lora_A and lora_B");
    if (parts.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        fmt::format("{}: {}", adapter_->source_, fmt::join(parts, "; ")));
  }

 private:
  const LoraConfig& config_;
  LoraAdapter* adapter_;
  TensorProblems problems_;
  std::set<std::string> files_, adapters_;
};

absl::StatusOr<LoraAdapter> LoraAdapter::Open(const std::string& dir, CheckpointFiles& files) {
  SC_ASSIGN_OR_RETURN(const LoraConfig config, ReadLoraConfig(dir));
  LoraAdapter adapter;
  LoraReader reader(config, &adapter);
  std::error_code error;
  for (const char* name : {"adapter_model.safetensors", "adapter_model.bin"}) {
    const fs::path path = fs::path(dir) / name;
    if (!fs::exists(path, error)) continue;
    if (!files.lora_names().empty()) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: the checkpoint contains adapter tensors too ({}, ...), so it is unclear which "
          "adapter to merge: leave only adapter_config.json in {}, or give the plain base model",
          path.string(), files.lora_names().front(), dir));
    }
    SC_ASSIGN_OR_RETURN(CheckpointFiles own, CheckpointFiles::Open(path.string()));
    adapter.source_ = path.string();
    for (const std::string& tensor : own.Names()) reader.Add(tensor, own.FindExact(tensor));
    SC_RETURN_IF_ERROR(reader.Finish());
    return adapter;
  }
  if (files.lora_names().empty()) {
    return absl::NotFoundError(fmt::format(
        "{}: holds neither adapter_model.safetensors nor adapter_model.bin, and {} no tensors of "
        "an adapter",
        dir, files.source()));
  }
  adapter.source_ = files.source();
  for (const std::string& tensor : files.lora_names()) {
    const bool is_base =
        tensor.find(".lora_") == tensor.npos && tensor.find(".modules_to_save.") == tensor.npos;
    if (!is_base) reader.Add(tensor, files.FindExact(tensor));
  }
  SC_RETURN_IF_ERROR(reader.Finish());
  return adapter;
}

const LoraPair* LoraAdapter::Find(const TensorRequest& request) const {
  constexpr std::string_view kWeight = ".weight";
  if (request.is_vector || !request.name.ends_with(kWeight)) return nullptr;
  for (std::string_view spelling : Spellings(request.name)) {
    spelling.remove_suffix(kWeight.size());
    const auto found = pairs_.find(spelling);
    if (found != pairs_.end()) return &found->second;
  }
  return nullptr;
}

std::vector<std::string> LoraAdapter::Problems(std::span<const TensorRequest> requests,
                                               bool is_whole_model) const {
  TensorProblems problems;
  std::set<const LoraPair*> used;
  for (const TensorRequest& request : requests) {
    const LoraPair* pair = Find(request);
    if (pair == nullptr) continue;
    used.insert(pair);
    if (pair->a.cols == request.cols && pair->b.rows == request.rows) continue;
    problems.Add(
        request.name,
        fmt::format("is [{}, {}], but the adapter's lora_B {} and lora_A {} are for another model",
                    request.rows, request.cols, ShapeText(pair->b), ShapeText(pair->a)));
  }
  for (const auto& [module, pair] : pairs_) {
    if (is_whole_model && !used.contains(&pair)) {
      problems.Add(module, "is in the adapter, but the model has no separate tensor of this name");
    }
  }
  std::vector<std::string> lines = problems.Lines();
  for (std::string& line : lines) line = fmt::format("{}: {}", source_, line);
  return lines;
}

std::unique_ptr<WeightSource> MergeAdapter(std::unique_ptr<WeightSource> base, LoraAdapter adapter,
                                           std::span<const TensorRequest> requests) {
  return std::make_unique<MergedSource>(std::move(base), std::move(adapter), requests);
}

}  // namespace stagecoach::worker
