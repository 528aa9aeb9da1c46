// One memory-mapped .safetensors file. Format: 8 bytes header length, a JSON header of that length,
// then the data that the header's offsets point into (github.com/huggingface/safetensors).
// Everything in the header is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::worker {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

struct SafetensorsEntry {
  std::string dtype;  // as the file spells it: "BF16"
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes of the file
};

class SafetensorsFile {
 public:
  // INVALID_ARGUMENT names the file, the tensor and what is wrong: a header that is no header,
  // offsets that overlap or point outside, a size that is not shape times dtype. NOT_FOUND: no such
  // file.
  static absl::StatusOr<std::shared_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsEntry, std::less<>>& entries() const { return entries_; }
  const std::byte* data() const { return data_; }  // of the whole file

  // Hints about [begin, end) of the file: will be read soon; will not be read again.
  void WillNeed(uint64_t begin, uint64_t end) const;
  void DontNeed(uint64_t begin, uint64_t end) const;

 private:
  SafetensorsFile(std::string path, const std::byte* data, uint64_t n_bytes)
      : path_(std::move(path)), data_(data), n_bytes_(n_bytes) {}
  absl::Status ReadHeader();

  std::string path_;
  const std::byte* data_;
  uint64_t n_bytes_;
  std::map<std::string, SafetensorsEntry, std::less<>> entries_;
};

}  // namespace stagecoach::worker
