#include "worker/loader/checkpoint_id.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

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

absl::Status AddWeights(const std::string& path, Digest& digest) {
  SC_ASSIGN_OR_RETURN(CheckpointFiles files, CheckpointFiles::Open(path));
  std::vector<std::string> names = files.Names();
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
      return AddWeights(folder / name, digest);
    }
  }
  return absl::OkStatus();  // the checkpoint has its tensors
}

}  // namespace

absl::StatusOr<std::string> CheckpointId(const CheckpointOptions& options, bool has_weights) {
  Digest digest;
  const std::filesystem::path path(options.model_path);
  if (std::error_code error; std::filesystem::is_directory(path, error)) {
    SC_RETURN_IF_ERROR(AddFile(path / "config.json", UINT64_MAX, digest));
  } else {
    SC_RETURN_IF_ERROR(AddFile(path, kMostMetadata, digest));
  }
  if (has_weights) SC_RETURN_IF_ERROR(AddWeights(options.model_path, digest));
  if (!options.adapter_dir.empty()) SC_RETURN_IF_ERROR(AddAdapter(options.adapter_dir, digest));
  if (options.quantize_to) digest.Add(EncodingName(*options.quantize_to));
  return digest.End();
}

}  // namespace stagecoach::worker
