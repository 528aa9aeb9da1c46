#include "cli/quantize/quantize_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cli/check/model_facts.h"
#include "cli/quantize/compressed_tensors.h"
#include "common/encoding/rows.h"
#include "common/json_text.h"
#include "common/model/config_reader.h"
#include "common/model/model_spec.h"
#include "common/status.h"
#include "worker/loader/check_checkpoint.h"
#include "worker/loader/checkpoint_files.h"
#include "worker/loader/safetensors_writer.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::quantize {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeight = ".weight";
constexpr const char* kIndexName = "model.safetensors.index.json";

bool IsWeightsFile(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".safetensors" || extension == ".bin" || extension == ".pt" ||
         extension == ".pth" || extension == ".gguf" || path.filename() == kIndexName ||
         path.filename() == "pytorch_model.bin.index.json";
}

std::string ModuleOf(const std::string& weight) {
  return weight.substr(0, weight.size() - kWeight.size());
}

absl::Status Failed(const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(fmt::format("{}: {}", path, error.message()));
}

// The matrix of a request, quantized.
struct Quantized {
  size_t request = 0;
  size_t rows = 0, cols = 0;
  Encoding encoding;
};

// One tensor of the checkpoint, and what takes its place.
struct Item {
  worker::CheckpointFiles::Found found;
  std::optional<Quantized> quantized;
  std::vector<worker::TensorToWrite> tensors;

  uint64_t n_bytes() const {
    uint64_t n = 0;
    for (const worker::TensorToWrite& tensor : tensors) n += tensor.n_bytes;
    return n;
  }
};

class Writer {
 public:
  Writer(const QuantizeOptions& options, const QuantizeProgress& progress)
      : options_(options), progress_(progress) {}

  absl::StatusOr<QuantizeReport> Run() {
    SC_ASSIGN_OR_RETURN(const std::string dir, ResolveModelDir(options_.model));
    std::error_code error;
    if (!fs::is_directory(dir, error)) {
      return absl::InvalidArgumentError(
          fmt::format("{}: only folders of safetensors can be quantized", dir));
    }
    if (fs::exists(options_.out, error) && !fs::is_empty(options_.out, error)) {
      return absl::InvalidArgumentError(
          fmt::format("{}: has files: name a new folder", options_.out));
    }
    SC_ASSIGN_OR_RETURN(const ModelSpec spec, ReadModelSpec(dir));
    if (spec.transposed_linears) {
      return absl::UnimplementedError(fmt::format(
          "{}: compressed-tensors has no form for the transposed matrices of {}; serve it with "
          "--quantize instead",
          dir, spec.architecture));
    }
    SC_RETURN_IF_ERROR(Open(dir, spec));
    fs::create_directories(options_.out, error);
    if (error) return Failed(options_.out, error);
    SC_RETURN_IF_ERROR(CopyOtherFiles(dir));
    SC_RETURN_IF_ERROR(WriteConfig(dir));
    SC_RETURN_IF_ERROR(WriteWeights());
    return report_;
  }

 private:
  absl::Status Open(const std::string& dir, const ModelSpec& spec) {
    worker::StageWeights targets;
    const worker::WeightPlan plan = check::PlanWholeModel(spec, &targets);
    const worker::CheckpointOptions checkpoint(dir, "", options_.code);
    const worker::CheckpointVerdict verdict =
        worker::CheckCheckpoint(checkpoint, spec, plan.requests);
    if (!verdict.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("{} cannot be served: {}", dir, fmt::join(verdict.problems, "; ")));
    }
    SC_ASSIGN_OR_RETURN(source_, worker::OpenCheckpoint(checkpoint, plan.requests));
    SC_ASSIGN_OR_RETURN(worker::CheckpointFiles files, worker::CheckpointFiles::Open(dir));
    std::map<std::string, Quantized> quantized;  // by the tensor's name in the checkpoint
    for (size_t i = 0; i < plan.requests.size(); ++i) {
      const worker::TensorRequest& request = plan.requests[i];
      const std::optional<Encoding> encoding = source_->encoding(i);
      if (!encoding || !IsQuantized(encoding->code)) continue;
      const std::string name = files.NameOf(request.name);
      if (request.is_stacked() || name.empty()) {
        return absl::UnimplementedError(fmt::format(
            "{}: has no form in compressed-tensors, because one tensor holds several matrices; "
            "serve the model with --quantize instead",
            request.name));
      }
      quantized[name] = {i, static_cast<size_t>(request.rows), static_cast<size_t>(request.cols),
                         *encoding};
    }
    for (const std::string& name : files.Names()) {
      SC_RETURN_IF_ERROR(Add(name, quantized, &files));
    }
    // With a tied embedding it is a module without a tensor of its own.
    if (spec.tied_embedding && !spec.names.lm_head.empty()) ignored_.push_back(spec.names.lm_head);
    if (!modules_.empty()) return absl::OkStatus();
    return absl::UnimplementedError("no matrix of the model divides into groups of 32 inputs");
  }

  absl::Status Add(const std::string& name, const std::map<std::string, Quantized>& quantized,
                   worker::CheckpointFiles* files) {
    Item item{.found = files->FindExact(name), .quantized = {}, .tensors = {}};
    SC_RETURN_IF_ERROR(item.found.file_error);
    const worker::StoredTensor* const stored = item.found.entry;
    if (item.found.file == nullptr || stored == nullptr) return absl::OkStatus();
    if (item.found.file->format != worker::FileFormat::kSafetensors) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: only safetensors can be quantized; write them first (transformers: from_pretrained, "
          "then save_pretrained)",
          files->source()));
    }
    const uint64_t n_bytes = stored->end - stored->begin;
    report_.bytes_before += n_bytes;
    if (const auto one = quantized.find(name); one != quantized.end()) {
      item.quantized = one->second;
      item.tensors = SpelledTensors(name, one->second.encoding, one->second.rows, one->second.cols);
      modules_[one->second.encoding.group].push_back(ModuleOf(name));
      ++report_.n_quantized;
    } else {
      item.tensors = {{name, stored->dtype, stored->shape, n_bytes}};
      // Each module with a matrix: the targets are all Linear modules but these.
      if (stored->shape.size() == 2 && name.ends_with(kWeight)) ignored_.push_back(ModuleOf(name));
      ++report_.n_kept;
    }
    report_.bytes_after += item.n_bytes();
    items_.push_back(std::move(item));
    return absl::OkStatus();
  }

  absl::Status CopyOtherFiles(const std::string& dir) const {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(dir, error)) {
      const fs::path& path = entry.path();
      if (!entry.is_regular_file(error) || IsWeightsFile(path) ||
          path.filename() == "config.json") {
        continue;
      }
      fs::copy_file(path, fs::path(options_.out) / path.filename(), error);
      if (error) return Failed(path.string(), error);
    }
    return error ? Failed(dir, error) : absl::OkStatus();
  }

  absl::Status WriteConfig(const std::string& dir) const {
    SC_ASSIGN_OR_RETURN(const auto config, ReadJsonObject(dir + "/config.json"));
    boost::json::object quantized = *config;
    quantized["quantization_config"] = QuantizationConfig(options_.code, modules_, ignored_);
    return WriteText("config.json", JsonText(quantized) + "\n");
  }

  absl::Status WriteText(const std::string& name, const std::string& text) const {
    const std::string path = (fs::path(options_.out) / name).string();
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    return file ? absl::OkStatus()
                : absl::UnavailableError(fmt::format("{}: cannot be written", path));
  }

  absl::Status WriteWeights() {
    std::vector<std::pair<size_t, size_t>> parts;  // items of each file
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (parts.empty() || n_bytes + items_[i].n_bytes() > options_.file_bytes) {
        parts.emplace_back(i, i);
        n_bytes = 0;
      }
      n_bytes += items_[i].n_bytes();
      parts.back().second = i + 1;
    }
    boost::json::object map;
    for (size_t p = 0; p < parts.size(); ++p) {
      const std::string name =
          parts.size() == 1 ? "model.safetensors"
                            : fmt::format("model-{:05}-of-{:05}.safetensors", p + 1, parts.size());
      SC_RETURN_IF_ERROR(WriteFile(name, parts[p].first, parts[p].second, &map));
    }
    if (parts.size() == 1) return absl::OkStatus();
    const boost::json::object index{{"metadata", {{"total_size", report_.bytes_after}}},
                                    {"weight_map", std::move(map)}};
    return WriteText(kIndexName, JsonText(index) + "\n");
  }

  absl::Status WriteFile(const std::string& name, size_t first, size_t end,
                         boost::json::object* map) {
    std::vector<worker::TensorToWrite> tensors;
    for (size_t i = first; i < end; ++i) {
      for (const worker::TensorToWrite& tensor : items_[i].tensors) {
        tensors.push_back(tensor);
        (*map)[tensor.name] = name;
      }
    }
    SC_ASSIGN_OR_RETURN(
        worker::SafetensorsWriter writer,
        worker::SafetensorsWriter::Create((fs::path(options_.out) / name).string(), tensors));
    for (size_t i = first; i < end; ++i) {
      const Item& item = items_[i];
      if (item.quantized) {
        const Quantized& q = *item.quantized;
        const auto* const stored = static_cast<const uint8_t*>(
            source_->StoredRows(q.request, 0, static_cast<int64_t>(q.rows)));
        const std::vector<uint8_t> data = SpelledData(q.encoding, stored, q.rows, q.cols);
        writer.Append(std::as_bytes(std::span(data)));
      } else {
        writer.Append(item.found.file->mapped->bytes().subspan(
            item.found.entry->begin, item.found.entry->end - item.found.entry->begin));
      }
      bytes_done_ += item.n_bytes();
      if (progress_) progress_(bytes_done_, report_.bytes_after);
    }
    return writer.Close();
  }

  const QuantizeOptions& options_;
  const QuantizeProgress& progress_;
  std::unique_ptr<worker::WeightSource> source_;
  std::vector<Item> items_;
  ModulesByGroup modules_;            // that are quantized
  std::vector<std::string> ignored_;  // that are not
  QuantizeReport report_;
  uint64_t bytes_done_ = 0;
};

}  // namespace

absl::StatusOr<QuantizeReport> QuantizeModel(const QuantizeOptions& options,
                                             const QuantizeProgress& progress) {
  return Writer(options, progress).Run();
}

}  // namespace stagecoach::quantize
