#include "worker/loader/safetensors_writer.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/json_text.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kAlignment = 8;  // of the data's start, as the format's own writer aligns it

absl::Status CannotWrite(const std::string& path) {
  return absl::UnavailableError(fmt::format("{}: cannot be written: {}", path, strerror(errno)));
}

}  // namespace

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, std::span<const TensorToWrite> tensors) {
  boost::json::object header{{"__metadata__", {{"format", "pt"}}}};
  uint64_t end = 0;
  for (const TensorToWrite& tensor : tensors) {
    const uint64_t begin = std::exchange(end, end + tensor.n_bytes);
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", boost::json::array(tensor.shape.begin(), tensor.shape.end())},
                           {"data_offsets", {begin, end}}};
  }
  std::string text = JsonText(header);
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t n_header_bytes = text.size();
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&n_header_bytes), sizeof(n_header_bytes));
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file) return CannotWrite(path);
  return SafetensorsWriter(path, std::move(file), end);
}

void SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  SC_CHECK(bytes.size() <= n_bytes_left_);
  n_bytes_left_ -= bytes.size();
  file_.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
}

absl::Status SafetensorsWriter::Close() {
  file_.close();
  if (!file_) return CannotWrite(path_);
  SC_CHECK(n_bytes_left_ == 0);
  return absl::OkStatus();
}

}  // namespace stagecoach::worker
