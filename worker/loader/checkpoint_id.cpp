#include "worker/loader/checkpoint_id.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/check.h"
#include "common/mapped_file.h"
#include "common/status.h"
#include "worker/loader/checkpoint_files.h"

namespace stagecoach::worker {
namespace {

constexpr uint64_t kSamples = 8;  // of each tensor
constexpr uint64_t kSampleBytes = 64;
constexpr uint64_t kMostMetadata = 1 << 20;  // of a GGUF file; the rest is mostly vocabulary

// SHA-256 over fields, each with its length, so that no two lists of fields are the same bytes.
class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    SC_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void Add(std::span<const std::byte> bytes) {
    const uint64_t size = bytes.size();
    Update(&size, sizeof(size));
    Update(bytes.data(), bytes.size());
  }
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  std::string End() {
    std::string digest(32, '\0');
    SC_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                nullptr) == 1);
    return digest;
  }

 private:
  void Update(const void* data, size_t n) {
    SC_CHECK(EVP_DigestUpdate(context_.get(), data, n) == 1);
  }

  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

absl::Status AddFile(const std::string& path, uint64_t most, Digest& digest) {
  SC_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  digest.Add(file->bytes().first(std::min<uint64_t>(most, file->bytes().size())));
  return absl::OkStatus();
}

void AddSamples(std::span<const std::byte> values, Digest& digest) {
  const uint64_t n = values.size();
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t begin = n / kSamples * i;
    digest.Add(values.subspan(begin, std::min(kSampleBytes, n - begin)));
  }
}

// The layer of a tensor, by its name: "model.layers.3.mlp.experts.5.up_proj.weight" is of layer 3.
std::optional<uint32_t> LayerOf(std::string_view name) {
  while (true) {
    const std::string_view word = name.substr(0, name.find('.'));
    uint32_t layer = 0;
    const auto [end, error] = std::from_chars(word.begin(), word.end(), layer);
    if (error == std::errc() && end == word.end()) return layer;
    if (word.size() == name.size()) return std::nullopt;
    name.remove_prefix(word.size() + 1);
  }
}

using Wanted = absl::FunctionRef<bool(std::string_view name)>;

bool All(std::string_view /*name*/) { return true; }

absl::Status AddWeights(const std::string& path, Wanted wanted, Digest& digest) {
  SC_ASSIGN_OR_RETURN(CheckpointFiles files, CheckpointFiles::Open(path));
  std::vector<std::string> names = files.Names();
  std::erase_if(names, [&](const std::string& name) { return !wanted(name); });
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const CheckpointFiles::Found found = files.FindExact(name);
    SC_RETURN_IF_ERROR(found.file_error);
    digest.Add(name);
    if (found.entry == nullptr) continue;
    digest.Add(found.entry->dtype);
    digest.Add(std::as_bytes(std::span(found.entry->shape)));
    const auto bytes = found.file->mapped->bytes();
    const uint64_t end = std::min<uint64_t>(found.entry->end, bytes.size());
    AddSamples(
        bytes.subspan(std::min(found.entry->begin, end), end - std::min(found.entry->begin, end)),
        digest);
  }
  return absl::OkStatus();
}

absl::Status AddAdapter(const std::string& dir, Digest& digest) {
  const std::filesystem::path folder(dir);
  SC_RETURN_IF_ERROR(AddFile(folder / "adapter_config.json", UINT64_MAX, digest));
  for (const char* name : {"adapter_model.safetensors", "adapter_model.bin"}) {
    if (std::error_code error; std::filesystem::exists(folder / name, error)) {
      return AddWeights(folder / name, All, digest);
    }
  }
  return absl::OkStatus();  // the checkpoint has its tensors
}

absl::StatusOr<std::string> IdOf(const CheckpointOptions& options, bool has_weights,
                                 Wanted wanted) {
  Digest digest;
  const std::filesystem::path path(options.model_path);
  if (std::error_code error; std::filesystem::is_directory(path, error)) {
    SC_RETURN_IF_ERROR(AddFile(path / "config.json", UINT64_MAX, digest));
  } else {
    SC_RETURN_IF_ERROR(AddFile(path, kMostMetadata, digest));
  }
  if (has_weights) SC_RETURN_IF_ERROR(AddWeights(options.model_path, wanted, digest));
  if (!options.adapter_dir.empty()) SC_RETURN_IF_ERROR(AddAdapter(options.adapter_dir, digest));
  if (options.quantize_to) digest.Add(EncodingName(*options.quantize_to));
  return digest.End();
}

}  // namespace

absl::StatusOr<std::string> CheckpointId(const CheckpointOptions& options, bool has_weights) {
  return IdOf(options, has_weights, All);
}

absl::StatusOr<std::string> LayersId(const CheckpointOptions& options, bool has_weights,
                                     uint32_t first_layer, uint32_t n_layers) {
  return IdOf(options, has_weights, [=](std::string_view name) {
    const std::optional<uint32_t> layer = LayerOf(name);
    return !layer || (*layer >= first_layer && *layer - first_layer < n_layers);
  });
}

}  // namespace stagecoach::worker
