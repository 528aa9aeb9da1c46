#include "worker/loader/tensor_file.h"

#include <cstring>
#include <string_view>

#include "common/status.h"
#include "worker/loader/gguf_tensors.h"
#include "worker/loader/safetensors.h"

namespace stagecoach::worker {

std::optional<DType> PlainDType(Encoding encoding) {
  switch (encoding) {
    case Encoding::kF32:
      return DType::kF32;
    case Encoding::kBF16:
      return DType::kBF16;
    case Encoding::kF16:
      return DType::kF16;
    default:
      return std::nullopt;
  }
}

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
  } else {
    SC_ASSIGN_OR_RETURN(file->tensors, ReadSafetensors(path, bytes));
  }
  return file;
}

}  // namespace stagecoach::worker
