#include "worker/loader/tensor_file.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "common/status.h"
#include "worker/loader/gguf_tensors.h"
#include "worker/loader/safetensors.h"
#include "worker/loader/torch_tensors.h"

namespace stagecoach::worker {

absl::StatusOr<std::shared_ptr<const TensorFile>> OpenTensorFile(const std::string& path) {
  auto file = std::make_shared<TensorFile>();
  SC_ASSIGN_OR_RETURN(file->mapped, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file->mapped->bytes();
  const auto begins_with = [&](std::string_view magic) {
    return bytes.size() >= magic.size() &&
           std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (begins_with("GGUF")) {
    file->format = FileFormat::kGguf;
    SC_ASSIGN_OR_RETURN(file->tensors, ReadGgufTensors(path, bytes));
  } else if (begins_with("PK\3\4")) {
    file->format = FileFormat::kTorch;
    SC_ASSIGN_OR_RETURN(file->tensors, ReadTorchTensors(path, bytes));
  } else if (begins_with("\x80\x02") && bytes.size() > 8 && bytes[8] != std::byte{'{'}) {
    // Not the length of a safetensors header, because "{" must follow that.
    return absl::UnimplementedError(fmt::format(
        "{}: written by a torch before 1.6, or a plain pickle; load it with torch "
        "(torch.load(FILE, weights_only=True)) and save it again with torch.save, or as "
        "safetensors (transformers: save_pretrained)",
        path));
  } else {
    SC_ASSIGN_OR_RETURN(file->tensors, ReadSafetensors(path, bytes));
  }
  return file;
}

}  // namespace stagecoach::worker
